rule figure:
    input:
        unpack(made_from("figure")),
    output:
        png=report(
            output_of("figure", "png"),
            caption="../report/figure.rst",
            category="Figures",
            labels={"figure": "{figure}"},
        ),
        svg=output_of("figure", "svg"),
    log:
        log_of("figure"),
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory_of("figure"),
        units=units_of("figure"),
    params:
        spec=spec("figure"),
        code=code("figure"),
    script:
        "../scripts/figure.py"
