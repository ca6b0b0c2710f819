"""Dependency endpoints of the skills API: show the packages of a skill, and build them."""

from typing import Literal

from starlette.responses import Response

from apexbridge.environments.lookup import SkillDependencies
from apexbridge.environments.needs import SkillNeeds
from apexbridge.environments.package_index import Ecosystem
from apexbridge.server.routing import RequestContext, Router, json_response
from apexbridge.server.skills.presenters import skill_from_path
from apexbridge.server.skills.schemas import PackageSchema, ResponseModel

router = Router("/v1/skills", scope="skills:read")


class RefusedPackageSchema(ResponseModel):
    """Declaration that is not followed, with the reason."""

    text: str
    where: str
    reason: str


class EnvironmentSchema(ResponseModel):
    """Built environment, shared by all skills with the same lock."""

    key: str
    ecosystem: Ecosystem
    interpreter: str
    packages: list[str]
    """`name==version` of each."""
    bytes: int


class DependenciesSchema(ResponseModel):
    """Packages of a skill, and whether they are there."""

    object: Literal["skill.dependencies"] = "skill.dependencies"
    skill: str
    packages: list[PackageSchema]
    refused: list[RefusedPackageSchema]
    """Declarations that are not followed: addresses, paths, options."""
    states: dict[Ecosystem, Literal["none", "installed", "built", "missing"]]
    missing: list[str]
    """Requirements that a build would install."""
    environments: list[EnvironmentSchema]


@router.get("/{id}/dependencies", response=DependenciesSchema, errors=(404,))
async def show_dependencies(ctx: RequestContext) -> Response:
    """Show the packages that a skill's scripts need."""
    found = await ctx.runtime.dependencies.show(skill_from_path(ctx))
    return json_response(_present(found))


@router.post(
    "/{id}/dependencies",
    scope="skills:write",
    response=DependenciesSchema,
    errors=(404, 422, 503),
)
async def build_dependencies(ctx: RequestContext) -> Response:
    """Build the packages of a skill; the key's permission to write skills is the consent."""
    skill = skill_from_path(ctx)
    await ctx.runtime.dependencies.build(skill)
    return json_response(_present(await ctx.runtime.dependencies.show(skill)))


def present_packages(needs: SkillNeeds) -> list[PackageSchema]:
    """Convert the packages of a skill."""
    return [
        PackageSchema(
            ecosystem=one.ecosystem,
            name=one.name,
            requirement=one.text,
            where=one.where,
            certainty=one.certainty,
        )
        for one in needs.packages
    ]


def _present(found: SkillDependencies) -> DependenciesSchema:
    return DependenciesSchema(
        skill=found.skill,
        packages=present_packages(found.needs),
        refused=[
            RefusedPackageSchema(text=one.text, where=one.where, reason=one.reason)
            for one in found.needs.refused
        ],
        states=found.states,
        missing=list(found.missing),
        environments=[
            EnvironmentSchema(
                key=one.key,
                ecosystem=one.ecosystem,
                interpreter=one.interpreter,
                packages=list(one.packages),
                bytes=one.size,
            )
            for one in found.environments.values()
        ],
    )
