rule scene_statistics:
    input:
        unpack(made_from("scene_statistics")),
    output:
        rows=output_of("scene_statistics", "rows"),
    log:
        log_of("scene_statistics"),
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory_of("scene_statistics"),
        units=units_of("scene_statistics"),
    params:
        spec=spec("scene_statistics"),
        code=code("scene_statistics"),
    script:
        "../scripts/scene_statistics.py"


rule assignment_priors:
    input:
        unpack(made_from("assignment_priors")),
    output:
        rows=output_of("assignment_priors", "rows"),
    log:
        log_of("assignment_priors"),
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory_of("assignment_priors"),
        units=units_of("assignment_priors"),
    params:
        spec=spec("assignment_priors"),
        code=code("assignment_priors"),
    script:
        "../scripts/assignment_priors.py"
