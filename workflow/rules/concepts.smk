rule dual_encoder:
    input:
        unpack(made_from("dual_encoder")),
    output:
        rows=output_of("dual_encoder", "rows"),
        weights=output_of("dual_encoder", "weights"),
    log:
        log_of("dual_encoder"),
    conda:
        "../../envs/torch.yaml"
    threads: threads_of("dual_encoder")
    resources:
        mem_mb=memory_of("dual_encoder"),
        units=units_of("dual_encoder"),
        gpu=gpus_of("dual_encoder"),
    params:
        spec=spec("dual_encoder"),
        code=code("dual_encoder"),
    script:
        "../scripts/dual_encoder.py"


rule concept_geometry:
    input:
        unpack(made_from("concept_geometry")),
    output:
        rows=output_of("concept_geometry", "rows"),
        picture=output_of("concept_geometry", "picture"),
    log:
        log_of("concept_geometry"),
    conda:
        "../../envs/torch.yaml"
    threads: threads_of("concept_geometry")
    resources:
        mem_mb=memory_of("concept_geometry"),
        units=units_of("concept_geometry"),
        gpu=gpus_of("concept_geometry"),
    params:
        spec=spec("concept_geometry"),
        code=code("concept_geometry"),
    script:
        "../scripts/concept_geometry.py"


rule binding_complexity:
    input:
        unpack(made_from("binding_complexity")),
    output:
        rows=output_of("binding_complexity", "rows"),
    log:
        log_of("binding_complexity"),
    conda:
        "../../envs/torch.yaml"
    threads: threads_of("binding_complexity")
    resources:
        mem_mb=memory_of("binding_complexity"),
        units=units_of("binding_complexity"),
        gpu=gpus_of("binding_complexity"),
    params:
        spec=spec("binding_complexity"),
        code=code("binding_complexity"),
    script:
        "../scripts/binding_complexity.py"
