"""Small indexes for evaluation tests."""

from collections.abc import Mapping

from apexbridge.evals.corpus import CorpusSkill
from apexbridge.evals.retrieval_eval import build_index
from apexbridge.retrieval.index import SkillIndex
from apexbridge.testing import HashEmbedder

LIBRARY = {
    "pdf-forms": "Fill in PDF forms. Extract the fields of a PDF document.",
    "git-commit": "Write a commit message. Look at the staged changes of a repository.",
    "meeting-minutes": "整理会议纪要。把录音转写成待办事项。",
    "csv-report": "Summarise a CSV table. Draw charts from columns of numbers.",
}


async def small_index(skills: Mapping[str, str] = LIBRARY) -> SkillIndex:
    """An index whose entries go by the skills' names."""
    corpus = [CorpusSkill(id=name, name=name, description=text) for name, text in skills.items()]
    return await build_index(corpus, HashEmbedder(256))
