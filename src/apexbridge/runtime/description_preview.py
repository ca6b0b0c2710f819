"""Description preview: the rank shifts that a new description would cause; nothing is stored."""

from dataclasses import replace

from apexbridge.errors import SkillInvalidError
from apexbridge.evals.interference import DescriptionPreview, compare_descriptions
from apexbridge.evals.trigger_eval import positive_queries
from apexbridge.retrieval.indexer import SkillTexts, TagPolicy
from apexbridge.retrieval.results import NO_CALLBACKS, SyncCallbacks
from apexbridge.retrieval.skill_document import SkillText
from apexbridge.runtime.container import Runtime
from apexbridge.skills.model import Problem, Skill
from apexbridge.sources.base import SkillSource


async def preview_description(
    runtime: Runtime, name: str, description: str, *, watch: SyncCallbacks = NO_CALLBACKS
) -> DescriptionPreview:
    """Compare the ranks of a skill with those it would have with another description.

    Raises:
        SkillNotFoundError: If there is no such skill.
        SkillInvalidError: If the description is empty.
        EvalInputError: If the skill's saved queries are malformed.
        RetrievalError: If the embedder fails.
    """
    if not description.strip():
        raise SkillInvalidError(name, [Problem(code="description_empty", where=name)])
    skill = runtime.catalog.get(name)
    source = runtime.catalog.source_of(skill).source
    await runtime.index_service.sync(watch)
    index = await runtime.index_service.index()
    has_tags = runtime.config.settings.index.tags
    old = await skill_text(skill, source, has_tags=has_tags)
    changed = replace(skill, description=description.strip())
    new = await skill_text(changed, source, has_tags=has_tags)
    return await compare_descriptions(index, old, new, await positive_queries(source, skill))


async def skill_text(skill: Skill, source: SkillSource, *, has_tags: bool) -> SkillText:
    """Return the text that is indexed of a skill, with keyword tags.

    Stored tags of a model are left out: they belong to a content hash, and of the two texts that a
    preview compares one has no hash yet.
    """
    texts = SkillTexts(read=source.content, tags=TagPolicy(is_on=has_tags))
    return await texts.item(skill).read()
