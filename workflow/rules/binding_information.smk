rule fit:
    input:
        unpack(made_from("fit")),
    output:
        rows=output_of("fit", "rows"),
        weights=output_of("fit", "weights"),
        history=output_of("fit", "history"),
        details=output_of("fit", "details"),
    log:
        log_of("fit"),
    conda:
        "../../envs/torch.yaml"
    threads: threads_of("fit")
    resources:
        mem_mb=memory_of("fit"),
        units=units_of("fit"),
        gpu=gpus_of("fit"),
    params:
        spec=spec("fit"),
        code=code("fit"),
    script:
        "../scripts/fit.py"


use rule fit as null with:
    input:
        unpack(made_from("null")),
    output:
        rows=output_of("null", "rows"),
        weights=output_of("null", "weights"),
        history=output_of("null", "history"),
        details=output_of("null", "details"),
    log:
        log_of("null"),
    threads: threads_of("null")
    resources:
        mem_mb=memory_of("null"),
        units=units_of("null"),
        gpu=gpus_of("null"),
    params:
        spec=spec("null"),
        code=code("null"),


rule learning_curve:
    input:
        unpack(made_from("learning_curve")),
    output:
        rows=output_of("learning_curve", "rows"),
    log:
        log_of("learning_curve"),
    conda:
        "../../envs/torch.yaml"
    threads: threads_of("learning_curve")
    resources:
        mem_mb=memory_of("learning_curve"),
        units=units_of("learning_curve"),
        gpu=gpus_of("learning_curve"),
    params:
        spec=spec("learning_curve"),
        code=code("learning_curve"),
    script:
        "../scripts/learning_curve.py"


rule attention:
    input:
        unpack(made_from("attention")),
    output:
        maps=output_of("attention", "maps"),
        share=output_of("attention", "share"),
    log:
        log_of("attention"),
    conda:
        "../../envs/torch.yaml"
    threads: threads_of("attention")
    resources:
        mem_mb=memory_of("attention"),
        units=units_of("attention"),
    params:
        spec=spec("attention"),
        code=code("attention"),
    script:
        "../scripts/attention.py"
