rule patch_samples:
    input:
        unpack(made_from("patch_samples")),
    output:
        manifest=output_of("patch_samples", "manifest"),
        store=directory(output_of("patch_samples", "store")),
    log:
        log_of("patch_samples"),
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory_of("patch_samples"),
        units=units_of("patch_samples"),
    params:
        spec=spec("patch_samples"),
        code=code("patch_samples"),
    script:
        "../scripts/patch_samples.py"


rule sampled:
    input:
        unpack(made_from("sampled")),
    output:
        manifest=output_of("sampled", "manifest"),
        store=directory(output_of("sampled", "store")),
    log:
        log_of("sampled"),
    conda:
        "../../envs/torch.yaml"
    threads: threads_of("sampled")
    resources:
        mem_mb=memory_of("sampled"),
        units=units_of("sampled"),
        gpu=gpus_of("sampled"),
    params:
        spec=spec("sampled"),
        code=code("sampled"),
    script:
        "../scripts/sampled.py"


use rule sampled as sampled_temporary with:
    input:
        unpack(made_from("sampled_temporary")),
        # Else parts of all models would be made while the patches of one split are missing.
        patches=all_of("patch_samples"),
    output:
        manifest=output_of("sampled_temporary", "manifest"),
        store=temp(directory(output_of("sampled_temporary", "store"))),
    log:
        log_of("sampled_temporary"),
    priority: one_after_another("sampled_temporary")
    threads: threads_of("sampled_temporary")
    resources:
        mem_mb=memory_of("sampled_temporary"),
        units=units_of("sampled_temporary"),
        gpu=gpus_of("sampled_temporary"),
    params:
        spec=spec("sampled_temporary"),
        code=code("sampled_temporary"),


rule same_object_fit:
    input:
        unpack(made_from("same_object_fit")),
    output:
        rows=output_of("same_object_fit", "rows"),
        strata=output_of("same_object_fit", "strata"),
        images=output_of("same_object_fit", "images"),
        weights=output_of("same_object_fit", "weights"),
    log:
        log_of("same_object_fit"),
    # Before further tokens are made: the last fit frees the disk of those that it reads.
    priority: 5
    conda:
        "../../envs/torch.yaml"
    threads: threads_of("same_object_fit")
    resources:
        mem_mb=memory_of("same_object_fit"),
        units=units_of("same_object_fit"),
        gpu=gpus_of("same_object_fit"),
    params:
        spec=spec("same_object_fit"),
        code=code("same_object_fit"),
    script:
        "../scripts/same_object_fit.py"


rule same_object_maps:
    input:
        unpack(made_from("same_object_maps")),
    output:
        maps=output_of("same_object_maps", "maps"),
    log:
        log_of("same_object_maps"),
    conda:
        "../../envs/torch.yaml"
    threads: threads_of("same_object_maps")
    resources:
        mem_mb=memory_of("same_object_maps"),
        units=units_of("same_object_maps"),
        gpu=gpus_of("same_object_maps"),
    params:
        spec=spec("same_object_maps"),
        code=code("same_object_maps"),
    script:
        "../scripts/same_object_maps.py"


rule same_object_geometry:
    input:
        unpack(made_from("same_object_geometry")),
    output:
        rows=output_of("same_object_geometry", "rows"),
    log:
        log_of("same_object_geometry"),
    priority: 5
    conda:
        "../../envs/torch.yaml"
    threads: threads_of("same_object_geometry")
    resources:
        mem_mb=memory_of("same_object_geometry"),
        units=units_of("same_object_geometry"),
    params:
        spec=spec("same_object_geometry"),
        code=code("same_object_geometry"),
    script:
        "../scripts/same_object_geometry.py"


rule same_object_effects:
    input:
        unpack(made_from("same_object_effects")),
    output:
        rows=output_of("same_object_effects", "rows"),
    log:
        log_of("same_object_effects"),
    conda:
        "../../envs/torch.yaml"
    threads: threads_of("same_object_effects")
    resources:
        mem_mb=memory_of("same_object_effects"),
        units=units_of("same_object_effects"),
        gpu=gpus_of("same_object_effects"),
    params:
        spec=spec("same_object_effects"),
        code=code("same_object_effects"),
    script:
        "../scripts/same_object_effects.py"
