from snakemake.utils import min_version

min_version("9.19")


if not {"datasets", "include"} & set(config):

    # The user's own beside the results, else this clone's.
    configfile:
        "config/config.yaml"
        if Path("config/config.yaml").is_file()
        else f"{workflow.basedir}/config/config.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"


wildcard_constraints:
    **wildcards(),


localrules:
    all,
    download,
    weights,


onstart:
    claim(Path.cwd())
    write_standing(graph)
    # Snakemake 9.27 starts a scheduler round per finished job and timespan: 11,000 in the default run.
    # A local run needs no limit of job starts. The attribute is private: another version may lack it.
    if workflow.local_exec and hasattr(workflow.scheduler, "job_rate_limiter"):
        workflow.scheduler.job_rate_limiter = None


onsuccess:
    keep_lost()
    release(Path.cwd())


onerror:
    keep_lost()
    release(Path.cwd())


rule all:
    input:
        graph.leaves(),
        lost_products(graph),


include: "workflow/rules/codes.smk"
include: "workflow/rules/records.smk"
include: "workflow/rules/priors.smk"
include: "workflow/rules/scenes.smk"
include: "workflow/rules/models.smk"
include: "workflow/rules/activations.smk"
include: "workflow/rules/texts.smk"


for study in studies():

    include: f"workflow/rules/{study}.smk"


include: "workflow/rules/tables.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/report.smk"
