rule table_priors:
    input:
        unpack(made_from("table_priors")),
    output:
        parquet=output_of("table_priors", "parquet"),
        csv=output_of("table_priors", "csv"),
        html=report(
            output_of("table_priors", "html"),
            caption="../report/table_priors.rst",
            category="Tables",
        ),
    log:
        log_of("table_priors"),
    benchmark:
        benchmark_of("table_priors")
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory(2000),
        runtime=minutes(60),
    params:
        spec=spec("table_priors"),
        code=code("table_priors"),
    script:
        "../scripts/table_priors.py"


rule table_scene_statistics:
    input:
        unpack(made_from("table_scene_statistics")),
    output:
        parquet=output_of("table_scene_statistics", "parquet"),
        csv=output_of("table_scene_statistics", "csv"),
        html=report(
            output_of("table_scene_statistics", "html"),
            caption="../report/table_scene_statistics.rst",
            category="Tables",
        ),
    log:
        log_of("table_scene_statistics"),
    benchmark:
        benchmark_of("table_scene_statistics")
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory(2000),
        runtime=60,
    params:
        spec=spec("table_scene_statistics"),
        code=code("table_scene_statistics"),
    script:
        "../scripts/table_scene_statistics.py"


rule table_binding_information:
    input:
        unpack(made_from("table_binding_information")),
    output:
        parquet=output_of("table_binding_information", "parquet"),
        csv=output_of("table_binding_information", "csv"),
        html=report(
            output_of("table_binding_information", "html"),
            caption="../report/table_binding_information.rst",
            category="Tables",
        ),
    log:
        log_of("table_binding_information"),
    benchmark:
        benchmark_of("table_binding_information")
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory(2000),
        runtime=minutes(60),
    params:
        spec=spec("table_binding_information"),
        code=code("table_binding_information"),
    script:
        "../scripts/table_binding_information.py"


rule table_attention:
    input:
        unpack(made_from("table_attention")),
    output:
        parquet=output_of("table_attention", "parquet"),
        csv=output_of("table_attention", "csv"),
        html=report(
            output_of("table_attention", "html"),
            caption="../report/table_attention.rst",
            category="Tables",
        ),
    log:
        log_of("table_attention"),
    benchmark:
        benchmark_of("table_attention")
    conda:
        "../../envs/base.yaml"
    resources:
        mem_mb=memory(2000),
        runtime=minutes(60),
    params:
        spec=spec("table_attention"),
        code=code("table_attention"),
    script:
        "../scripts/table_attention.py"
