"""What another description would do to the ranks of a skill here, before it is saved."""

from collections.abc import Sequence
from dataclasses import replace

from apexbridge.errors import EvalInputError, SkillInvalidError
from apexbridge.evals import interference as previewing
from apexbridge.evals import trigger_eval
from apexbridge.lifecycle.indexer import TagPolicy
from apexbridge.retrieval.results import NO_CALLBACKS, SyncCallbacks
from apexbridge.retrieval.skill_document import SkillText
from apexbridge.runtime.container import Runtime
from apexbridge.skills.model import Problem, Skill
from apexbridge.sources.base import SkillSource


async def preview_description(
    runtime: Runtime, name: str, description: str, *, watch: SyncCallbacks = NO_CALLBACKS
) -> previewing.DescriptionPreview:
    """Compare the ranks of a skill as it is with those it would have; nothing is stored.

    Raises:
        SkillNotFoundError: If there is no such skill.
        SkillInvalidError: If the description is empty.
        EvalInputError: If the skill's saved queries make no sense.
        RetrievalError: If the embedder fails.
    """
    if not description.strip():
        raise SkillInvalidError(name, [Problem(code="description_empty", where=name)])
    skill = runtime.catalog.get(name)
    source = runtime.catalog.source_of(skill).source
    await runtime.index_service.vectorise(watch)
    index = await runtime.index_service.index()
    uses_tags = runtime.config.settings.index.tags
    old = await skill_text(skill, source, uses_tags=uses_tags)
    changed = replace(skill, description=description.strip())
    new = await skill_text(changed, source, uses_tags=uses_tags)
    saved = [one.query for one in await _saved_queries(source, skill) if one.should_trigger]
    return await previewing.compare_descriptions(index, old, new, saved)


async def skill_text(skill: Skill, source: SkillSource, *, uses_tags: bool) -> SkillText:
    """What the index would be given of a skill; no model is asked for its tags."""
    body = (await source.content(skill)).body
    tags = await TagPolicy(is_on=uses_tags).tags(skill, body)
    return SkillText(
        name=skill.name,
        summary=skill.summary,
        body=body,
        tags=tags.tags,
        other_language=tags.other_language,
    )


async def _saved_queries(source: SkillSource, skill: Skill) -> Sequence[trigger_eval.TriggerQuery]:
    """Queries help, and a skill need not have any; broken ones are told."""
    try:
        return await trigger_eval.saved_queries(source, skill)
    except EvalInputError as error:
        if error.code != "eval_queries_missing":
            raise
        return ()
