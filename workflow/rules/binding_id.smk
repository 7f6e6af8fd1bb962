rule binding_id_estimates:
    input:
        unpack(made_from("binding_id_estimates")),
    output:
        estimates=output_of("binding_id_estimates", "estimates"),
        vectors=output_of("binding_id_estimates", "vectors"),
    log:
        log_of("binding_id_estimates"),
    conda:
        "../../envs/torch.yaml"
    threads: threads_of("binding_id_estimates")
    resources:
        mem_mb=memory_of("binding_id_estimates"),
        units=units_of("binding_id_estimates"),
        gpu=gpus_of("binding_id_estimates"),
    params:
        spec=spec("binding_id_estimates"),
        code=code("binding_id_estimates"),
    script:
        "../scripts/binding_id_estimates.py"


rule binding_id_interventions:
    input:
        unpack(made_from("binding_id_interventions")),
    output:
        rows=output_of("binding_id_interventions", "rows"),
        answers=output_of("binding_id_interventions", "answers"),
    log:
        log_of("binding_id_interventions"),
    conda:
        "../../envs/torch.yaml"
    threads: threads_of("binding_id_interventions")
    resources:
        mem_mb=memory_of("binding_id_interventions"),
        units=units_of("binding_id_interventions"),
        gpu=gpus_of("binding_id_interventions"),
    params:
        spec=spec("binding_id_interventions"),
        code=code("binding_id_interventions"),
    script:
        "../scripts/binding_id_interventions.py"


rule toy_vlm:
    input:
        unpack(made_from("toy_vlm")),
    output:
        manifest=output_of("toy_vlm", "manifest"),
        weights=output_of("toy_vlm", "weights"),
    log:
        log_of("toy_vlm"),
    conda:
        "../../envs/torch.yaml"
    threads: threads_of("toy_vlm")
    resources:
        mem_mb=memory_of("toy_vlm"),
        units=units_of("toy_vlm"),
        gpu=gpus_of("toy_vlm"),
    params:
        spec=spec("toy_vlm"),
        code=code("toy_vlm"),
    script:
        "../scripts/toy_vlm.py"
