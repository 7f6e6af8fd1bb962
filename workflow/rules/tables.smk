rule table:
    input:
        unpack(made_from("table")),
    output:
        parquet=output_of("table", "parquet"),
        csv=output_of("table", "csv"),
        html=report(
            output_of("table", "html"),
            caption="../report/table.rst",
            category="Tables",
            labels={"table": "{table}"},
        ),
    log:
        log_of("table"),
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory_of("table"),
        units=units_of("table"),
    params:
        spec=spec("table"),
        code=code("table"),
    script:
        "../scripts/table.py"
