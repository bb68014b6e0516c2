"""Python written for Spark Declarative Pipelines, as it stands: `from pyspark import pipelines as dp`.

While the files of a project are loaded, `pyspark.pipelines` is `facade`, `spark` is a `session.Session`, and
what is declared goes to a `registry`. Each function is then called once with stand-ins (`stand_in`), which
shows what it reads (`reading`), and becomes a declaration like any other (`declared`).
"""

from __future__ import annotations

from headwater.project.pipelines.declared import declarations, is_of_pipeline, text_of, with_topics
from headwater.project.pipelines.loading import loading
from headwater.project.pipelines.registry import collected
from headwater.project.pipelines.session import Session

__all__ = ["Session", "collected", "declarations", "is_of_pipeline", "loading", "text_of", "with_topics"]
