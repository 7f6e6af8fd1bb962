rule scenes:
    output:
        manifest=output_of("scenes", "manifest"),
        store=directory(output_of("scenes", "store")),
    log:
        log_of("scenes"),
    benchmark:
        benchmark_of("scenes")
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory(2000),
        runtime=minutes(60),
    params:
        spec=spec("scenes"),
        code=code("scenes"),
    script:
        "../scripts/scenes.py"


rule scene_statistics:
    input:
        unpack(made_from("scene_statistics")),
    output:
        rows=output_of("scene_statistics", "rows"),
    log:
        log_of("scene_statistics"),
    benchmark:
        benchmark_of("scene_statistics")
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory(1000),
        runtime=60,
    params:
        spec=spec("scene_statistics"),
        code=code("scene_statistics"),
    script:
        "../scripts/scene_statistics.py"
