rule codes:
    output:
        manifest=output_of("codes", "manifest"),
        store=directory(output_of("codes", "store")),
    log:
        log_of("codes"),
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory_of("codes"),
        units=units_of("codes"),
    params:
        spec=spec("codes"),
        code=code("codes"),
    script:
        "../scripts/codes.py"
