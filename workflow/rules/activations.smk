rule encoded:
    output:
        manifest=output_of("encoded", "manifest"),
        store=directory(output_of("encoded", "store")),
    log:
        log_of("encoded"),
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory_of("encoded"),
        units=units_of("encoded"),
    params:
        spec=spec("encoded"),
        code=code("encoded"),
    script:
        "../scripts/encoded.py"


rule pooled:
    input:
        unpack(made_from("pooled")),
    output:
        manifest=output_of("pooled", "manifest"),
        store=directory(output_of("pooled", "store")),
    log:
        log_of("pooled"),
    conda:
        "../../envs/torch.yaml"
    threads: threads_of("pooled")
    resources:
        mem_mb=memory_of("pooled"),
        units=units_of("pooled"),
        gpu=gpus_of("pooled"),
    params:
        spec=spec("pooled"),
        code=code("pooled"),
    script:
        "../scripts/extract.py"


use rule pooled as patches with:
    input:
        unpack(made_from("patches")),
    output:
        manifest=output_of("patches", "manifest"),
        store=directory(output_of("patches", "store")),
    log:
        log_of("patches"),
    threads: threads_of("patches")
    resources:
        mem_mb=memory_of("patches"),
        units=units_of("patches"),
        gpu=gpus_of("patches"),
    params:
        spec=spec("patches"),
        code=code("patches"),


use rule pooled as patches_temporary with:
    input:
        unpack(made_from("patches_temporary")),
    output:
        manifest=output_of("patches_temporary", "manifest"),
        store=temp(directory(output_of("patches_temporary", "store"))),
    log:
        log_of("patches_temporary"),
    threads: threads_of("patches_temporary")
    resources:
        mem_mb=memory_of("patches_temporary"),
        units=units_of("patches_temporary"),
        gpu=gpus_of("patches_temporary"),
    params:
        spec=spec("patches_temporary"),
        code=code("patches_temporary"),


rule index:
    input:
        unpack(made_from("index")),
    output:
        index=output_of("index", "index"),
    log:
        log_of("index"),
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory_of("index"),
        units=units_of("index"),
    params:
        spec=spec("index"),
        code=code("index"),
    script:
        "../scripts/index.py"
