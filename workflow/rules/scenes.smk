rule scenes:
    output:
        manifest=output_of("scenes", "manifest"),
        store=directory(output_of("scenes", "store")),
    log:
        log_of("scenes"),
    # Before temporary tokens: with all scenes there, those of one model are complete, read and gone.
    priority: 6
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory_of("scenes"),
        units=units_of("scenes"),
    params:
        spec=spec("scenes"),
        code=code("scenes"),
    script:
        "../scripts/scenes.py"
