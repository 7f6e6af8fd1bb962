rule weights:
    output:
        manifest=output_of("weights", "manifest"),
    log:
        log_of("weights"),
    # What cannot be had is known before anything is computed.
    priority: 100
    conda:
        "../../envs/torch.yaml"
    resources:
        mem_mb=memory_of("weights"),
        units=units_of("weights"),
    params:
        spec=spec("weights"),
        code=code("weights"),
    script:
        "../scripts/weights.py"


rule training:
    input:
        unpack(made_from("training")),
    output:
        manifest=output_of("training", "manifest"),
        weights=output_of("training", "weights"),
        history=output_of("training", "history"),
    log:
        log_of("training"),
    # The longest way through the graph begins here.
    priority: 10
    conda:
        "../../envs/torch.yaml"
    threads: threads_of("training")
    resources:
        mem_mb=memory_of("training"),
        units=units_of("training"),
        gpu=gpus_of("training"),
    params:
        spec=spec("training"),
        code=code("training"),
    script:
        "../scripts/training.py"


rule truth:
    output:
        truth=output_of("truth", "truth"),
    log:
        log_of("truth"),
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory_of("truth"),
        units=units_of("truth"),
    params:
        spec=spec("truth"),
        code=code("truth"),
    script:
        "../scripts/truth.py"
