rule lengths:
    input:
        unpack(made_from("lengths")),
    output:
        rows=output_of("lengths", "rows"),
    log:
        log_of("lengths"),
    conda:
        f"{workflow.basedir}/envs/base.yaml"
    resources:
        mem_mb=memory_of("lengths"),
        units=units_of("lengths"),
    params:
        spec=spec("lengths"),
        code=code("lengths"),
    script:
        "../scripts/lengths.py"
