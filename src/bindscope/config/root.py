"""The whole configuration of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, create_model, model_validator

from bindscope.config.base import ConfigModel
from bindscope.config.codes import Dataset
from bindscope.config.models import AnyModel
from bindscope.config.references import problems
from bindscope.config.seeds import write_out
from bindscope.core.registries import resolve, studies


class Report(ConfigModel):
    """The page."""

    title: str = Field("Binding information", description="Title of results/report.html.")
    figures: tuple[str, ...] | None = Field(
        None,
        description="Figures to draw, by name; default: all. One whose data are not configured is "
        "left out.",
    )


def _sections() -> type[ConfigModel]:
    """Make the model of `studies`: a key for each study that has a section."""
    fields: dict[str, Any] = {
        name: (resolve(study.section) | None, Field(None, description=f"{study.title}."))
        for name, study in studies().items()
        if study.section
    }
    return create_model("Studies", __base__=ConfigModel, __doc__="What is measured.", **fields)


if TYPE_CHECKING:
    Studies = ConfigModel
else:
    Studies = _sections()


class Config(ConfigModel):
    """Everything that decides the results."""

    include: str | tuple[str, ...] = Field(
        (),
        exclude=True,  # read before anything is made (config.composition)
        description="Files that this one changes key by key, the later ones over the earlier; "
        "lists are replaced whole. Paths start from the folder of the file that includes.",
    )
    datasets: tuple[Dataset, ...] = Field(
        description="Scenes; an empty list where what is measured needs none."
    )
    models: tuple[AnyModel, ...] = Field((), description="Representations.")
    studies: Studies = Field(Studies(), description="What is measured; each study is optional.")
    report: Report = Field(Report(), description="The report.")

    @model_validator(mode="before")
    @classmethod
    def _written_out(cls, raw: Any) -> Any:
        return write_out(raw)[0] if isinstance(raw, dict) else raw

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if messages := list(problems(self)):
            raise ValueError("\n".join(messages))
        return self
