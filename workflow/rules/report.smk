rule report:
    input:
        unpack(made_from("report")),
        published="resources/published/binding_information.csv",
        trends="resources/published/trends.csv",
        captions=captions(),
        # Not a module, so not in the code key.
        template="src/bindscope/report/template.html.j2",
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
