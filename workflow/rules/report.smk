rule report:
    input:
        unpack(made_from("report")),
    output:
        page=output_of("report", "page"),
    log:
        log_of("report"),
    benchmark:
        benchmark_of("report")
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory(2000),
        runtime=minutes(60),
    params:
        spec=spec("report"),
        code=code("report"),
    script:
        "../scripts/report.py"
