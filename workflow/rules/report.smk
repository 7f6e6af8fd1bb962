rule report:
    input:
        unpack(made_from("report")),
    output:
        page=output_of("report", "page"),
    log:
        log_of("report"),
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory_of("report"),
        units=units_of("report"),
    params:
        spec=spec("report"),
        code=code("report"),
    script:
        "../scripts/report.py"
