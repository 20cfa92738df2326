"""From options to the processes to start. Pure: it starts nothing and reads no global state."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from scrapy_hexshard.errors import LaunchError, SettingError
from scrapy_hexshard.launcher.proxies import (
    ambient_names,
    is_shard_variable,
    read_proxies,
    unused_names,
)
from scrapy_hexshard.proxy_url import PROXY_VARIABLE, Proxy, secrets_in
from scrapy_hexshard.redaction import Redactor
from scrapy_hexshard.sharding import SHARD_VARIABLE, SHARDS_VARIABLE, check_count

_PLACEHOLDER = re.compile(r"\{\{(shards?)\}\}|\{(shards?)\}")


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What to start for one shard. Neither environment nor secrets are in its repr."""

    shard: int
    argv: tuple[str, ...]
    environ: Mapping[str, str] = field(repr=False)
    secrets: frozenset[str] = field(repr=False)
    has_proxy: bool = False

    def describe(self, secrets: frozenset[str] = frozenset()) -> str:
        """The command as a shell would take it, with ``PROXY_URL`` only as set or none.

        *secrets*, such as those of other shards, are hidden in it like its own.
        """
        variables = [
            f"{SHARD_VARIABLE}={self.environ[SHARD_VARIABLE]}",
            f"{SHARDS_VARIABLE}={self.environ[SHARDS_VARIABLE]}",
            f"{PROXY_VARIABLE}=<{'set' if self.has_proxy else 'none'}>",
        ]
        command = Redactor(self.secrets | secrets).hide_text(shlex.join(self.argv))
        return f"[{self.shard}] {' '.join(variables)} {command}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The processes of all shards, and what the user should know before they start."""

    specs: tuple[ProcessSpec, ...]
    notices: tuple[str, ...]

    def describe(self) -> str:
        """What would be started, a line a shard, without a secret of any of them."""
        secrets = frozenset().union(*(spec.secrets for spec in self.specs))
        return "".join(f"{spec.describe(secrets)}\n" for spec in self.specs)


def make_plan(
    command: tuple[str, ...],
    shards: int,
    environ: Mapping[str, str],
    *,
    inherit_proxy: bool = False,
    require_proxy: bool = False,
) -> Plan:
    """The plan for running *command* once per shard.

    Raises LaunchError without a command, ShardError for an impossible number of *shards*,
    SettingError for a proxy that is invalid or, with *require_proxy*, missing.
    """
    if not command:
        raise LaunchError("No command to run: write it after --, such as -- scrapy crawl products.")
    check_count(shards)
    proxies = read_proxies(environ, shards)
    missing = [shard for shard in range(shards) if shard not in proxies]
    if require_proxy and missing:
        names = ", ".join(f"{PROXY_VARIABLE}_{shard}" for shard in missing)
        raise SettingError(f"--require-proxy was given, but these are not set: {names}.")
    base = _base_environ(environ, inherit_proxy)
    specs = tuple(
        _spec(command, shard, shards, base, proxies.get(shard)) for shard in range(shards)
    )
    return Plan(specs, tuple(_notices(environ, shards, missing, inherit_proxy)))


def fill(argument: str, shard: int, shards: int) -> str:
    """*argument* with ``{shard}`` and ``{shards}`` replaced; ``{{shard}}`` stands for ``{shard}``.

    All other braces stay as they are, so that JSON survives.
    """
    numbers = {"shard": str(shard), "shards": str(shards)}
    return _PLACEHOLDER.sub(
        lambda match: f"{{{match[1]}}}" if match[1] else numbers[match[2]], argument
    )


def shard_names(shards: Iterable[int]) -> str:
    """*shards* as people write them: ``shard 2`` or ``shards 0-3, 7``."""
    ranges: list[list[int]] = []
    for shard in sorted(shards):
        if ranges and shard == ranges[-1][-1] + 1:
            ranges[-1][1:] = [shard]
        else:
            ranges.append([shard])
    written = ", ".join("-".join(map(str, each)) for each in ranges)
    return f"shard {written}" if written.isdigit() else f"shards {written}"


def _base_environ(environ: Mapping[str, str], inherit_proxy: bool) -> dict[str, str]:
    ambient = () if inherit_proxy else ambient_names(environ)
    return {
        name: value
        for name, value in environ.items()
        if name not in ambient and not is_shard_variable(name)
    }


def _spec(
    command: tuple[str, ...], shard: int, shards: int, base: dict[str, str], proxy: Proxy | None
) -> ProcessSpec:
    environ = {**base, SHARD_VARIABLE: str(shard), SHARDS_VARIABLE: str(shards)}
    if proxy:
        environ[PROXY_VARIABLE] = proxy.url
    secrets = secrets_in(environ[name] for name in ambient_names(environ))
    return ProcessSpec(
        shard=shard,
        argv=tuple(fill(argument, shard, shards) for argument in command),
        environ=environ,
        secrets=secrets | (proxy.secrets if proxy else frozenset()),
        has_proxy=PROXY_VARIABLE in environ,
    )


def _notices(
    environ: Mapping[str, str], shards: int, missing: list[int], inherit_proxy: bool
) -> list[str]:
    notices = []
    ambient = ambient_names(environ)
    if ambient and not inherit_proxy:
        notices.append(
            f"{', '.join(ambient)} kept from the workers; --inherit-proxy hands them on."
        )
    if missing and not (ambient and inherit_proxy):
        notices.append(f"Without a proxy: {shard_names(missing)}.")
    if unused := unused_names(environ, shards):
        notices.append(f"{', '.join(unused)} not used: the shards go from 0 to {shards - 1}.")
    return notices
