"""From options to the processes to start. It starts nothing and reads no global state."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from scrapy_hexshard.errors import LaunchError, SettingError
from scrapy_hexshard.launcher.ambient_proxies import (
    ambient_names,
    crashing_names,
    proxied_schemes,
    proxy_names,
)
from scrapy_hexshard.launcher.placeholders import fill
from scrapy_hexshard.launcher.proxies import (
    FILE_VARIABLE,
    TEMPLATE_FILE_VARIABLE,
    TEMPLATE_VARIABLE,
    ShardProxy,
    is_shard_variable,
    names_beyond,
    read_proxies,
    template_names,
    unknown_names,
)
from scrapy_hexshard.launcher.proxy_remarks import remarks
from scrapy_hexshard.proxy_url import PROXY_VARIABLE, Proxy, own_proxy, secrets_in
from scrapy_hexshard.redaction import MIN_SECRET_LENGTH, Redactor
from scrapy_hexshard.sharding import SHARD_VARIABLE, SHARDS_VARIABLE, check_count


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What to start for one shard. Its repr shows neither command nor environment nor secrets."""

    shard: int
    argv: tuple[str, ...] = field(repr=False)
    environ: Mapping[str, str] = field(repr=False)
    secrets: frozenset[str] = field(repr=False)
    proxy: Proxy | None = None

    def describe(self, redactor: Redactor | None = None) -> str:
        """The command as a shell would take it, with ``PROXY_URL`` only as set or none.

        Its secrets are hidden, or those that *redactor* knows.
        """
        variables = [
            f"{SHARD_VARIABLE}={self.environ[SHARD_VARIABLE]}",
            f"{SHARDS_VARIABLE}={self.environ[SHARDS_VARIABLE]}",
            f"{PROXY_VARIABLE}=<{'set' if self.proxy else 'none'}>",
        ]
        command = (redactor or Redactor(self.secrets)).hide_text(shlex.join(self.argv))
        return f"[{self.shard}] {' '.join(variables)} {command}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The processes of all shards, and what the user should know before they start."""

    specs: tuple[ProcessSpec, ...]
    notices: tuple[str, ...]

    def describe(self) -> str:
        """What would be started, a line a shard, without a secret of any of them."""
        redactor = Redactor(frozenset().union(*(spec.secrets for spec in self.specs)))
        return "".join(f"{spec.describe(redactor)}\n" for spec in self.specs)


def make_plan(
    command: tuple[str, ...],
    shards: int,
    environ: Mapping[str, str],
    *,
    inherit_proxy: bool = False,
    require_proxy: bool = False,
) -> Plan:
    """The plan for running *command* once per shard.

    The files that ``PROXY_URL_FILE_<shard>`` and the like name are read. Raises LaunchError without
    a command, ShardError for an impossible number of *shards*, SettingError for a proxy that is
    invalid or, with *require_proxy*, missing.
    """
    if not command:
        raise LaunchError("No command to run: write it after --, such as -- scrapy crawl products.")
    check_count(shards)
    found = read_proxies(environ, shards)
    if require_proxy:
        _require(found, shards)
    base = _base_environ(environ, inherit_proxy)
    inherited = own_proxy(base)
    proxies = {shard: each.proxy for shard, each in found.items()}
    if inherited:
        proxies |= {shard: inherited for shard in range(shards) if shard not in found}
    specs = tuple(
        _spec(command, shard, shards, base, proxies.get(shard)) for shard in range(shards)
    )
    notices = [
        *_notices_of_variables(environ, shards, found, inherit_proxy),
        *_notices_of_short_secrets(found, base),
        *(
            f"{remark.text}: {'; '.join(map(shard_names, remark.groups))}."
            for remark in remarks(proxies, found)
        ),
    ]
    return Plan(specs, tuple(notices))


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


def _require(found: Mapping[int, ShardProxy], shards: int) -> None:
    if missing := [shard for shard in range(shards) if shard not in found]:
        raise SettingError(
            f"--require-proxy was given, but there is none for {shard_names(missing)}: set "
            f"{PROXY_VARIABLE}_<shard>."
        )


def _base_environ(environ: Mapping[str, str], inherit_proxy: bool) -> dict[str, str]:
    ambient = () if inherit_proxy else ambient_names(environ)
    base = {
        name: value
        for name, value in environ.items()
        if name not in ambient and not is_shard_variable(name)
    }
    if crashing := crashing_names(base):
        raise SettingError(
            f"{', '.join(crashing)}: a user name without a password, on which Scrapy fails. Write "
            "user:@host for an empty one, or unset it."
        )
    return base


def _spec(
    command: tuple[str, ...], shard: int, shards: int, base: dict[str, str], proxy: Proxy | None
) -> ProcessSpec:
    environ = {**base, SHARD_VARIABLE: str(shard), SHARDS_VARIABLE: str(shards)}
    if proxy:
        environ[PROXY_VARIABLE] = proxy.url
    secrets = secrets_in(environ[name] for name in proxy_names(environ))
    return ProcessSpec(
        shard=shard,
        argv=tuple(fill(argument, shard, shards) for argument in command),
        environ=environ,
        secrets=secrets | (proxy.secrets if proxy else frozenset()),
        proxy=proxy,
    )


def _notices_of_short_secrets(
    found: Mapping[int, ShardProxy], base: Mapping[str, str]
) -> Iterator[str]:
    names = {each.source.name for each in found.values() if _is_short(each.proxy.secrets)}
    inherited = [PROXY_VARIABLE, *proxy_names(base)]
    names |= {name for name in inherited if _is_short(secrets_in([base.get(name, "")]))}
    if names:
        yield (
            f"{', '.join(sorted(names))}: a user name or password of fewer than "
            f"{MIN_SECRET_LENGTH} characters, too short to be hidden wherever it stands."
        )


def _is_short(secrets: Iterable[str]) -> bool:
    return any(0 < len(secret) < MIN_SECRET_LENGTH for secret in secrets)


def _inherited_schemes(environ: Mapping[str, str]) -> frozenset[str]:
    """For which pages, of http and https, a shard without a proxy of its own inherits one."""
    if environ.get(PROXY_VARIABLE, "").strip():
        return frozenset({"http", "https"})
    return proxied_schemes(environ)


def _notices_of_variables(
    environ: Mapping[str, str], shards: int, found: Mapping[int, ShardProxy], inherit_proxy: bool
) -> Iterator[str]:
    ambient = [name for name in ambient_names(environ) if environ[name].strip()]
    if ambient and inherit_proxy:
        yield f"{', '.join(ambient)} handed on to the workers."
    elif ambient:
        yield f"{', '.join(ambient)} kept from the workers; --inherit-proxy hands them on."
    missing = [shard for shard in range(shards) if shard not in found]
    pages = sorted({"http", "https"} - (_inherited_schemes(environ) if inherit_proxy else set()))
    if missing and pages:
        where = f" for {pages[0]}:// pages" if len(pages) == 1 else ""
        yield f"Without a proxy{where}: {shard_names(missing)}."
    if names := names_beyond(environ, shards):
        yield f"{', '.join(names)} not used: the shards go from 0 to {shards - 1}."
    if names := unknown_names(environ):
        yield (
            f"{', '.join(names)} not used: what is read is {PROXY_VARIABLE}_<shard>, "
            f"{FILE_VARIABLE}_<shard>, {TEMPLATE_VARIABLE} and {TEMPLATE_FILE_VARIABLE}."
        )
    if not any(each.from_template for each in found.values()):
        for name in template_names(environ):
            yield f"{name} not used: every shard has a proxy of its own."
