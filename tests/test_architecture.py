"""The shape of the package: imports point down, in no circle, and Scrapy stays in its folder."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import scrapy_hexshard

PACKAGE = Path(scrapy_hexshard.__file__).parent
ROOT = PACKAGE.name

# What each part may import of the package; a part is a module or a folder, the longest name counts.
CORE = {"errors", "keys", "sharding", "config", "pipes", "proxy_url", "redaction"}
MAY_IMPORT = {
    "": set[str](),  # its public names are resolved on first use
    "__main__": {"cli"},
    "errors": set[str](),
    "keys": {"errors"},
    "sharding": {"errors", "keys"},
    "config": {"errors", "keys", "sharding"},
    "pipes": {"errors"},
    "proxy_url": {"errors"},
    "redaction": {"errors"},
    "units": {"errors"},
    "store.contract": {"errors", "keys", "sharding", "config"},
    "store": {"errors", "keys", "sharding", "config", "store.contract", "store"},
    "components": {*CORE, "units", "store.contract", "store", "components"},
    "components.shard_command": {"cli"},  # the commands under the name of Scrapy's own
    "launcher": {*CORE, "launcher"},
    "cli": {*CORE, "store.contract", "store", "launcher", "cli", ""},
}
SCRAPY = {"scrapy", "twisted", "itemadapter", "pydispatch", "parsel", "queuelib", "zope"}
VAGUE = {"util", "utils", "helper", "helpers", "common", "compat", "misc", "tools"}


def module_name(path: Path) -> str:
    """The name of a file's module inside the package; that of the package itself is empty."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported(path: Path) -> Iterator[str]:
    """The full name of everything a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports(module: str) -> set[str]:
    """The modules of the package that one of them imports."""
    found = set()
    for name in imported(FILES[module]):
        if name == ROOT or name.startswith(f"{ROOT}."):
            inside = name[len(ROOT) + 1 :]
            found.add(inside if inside in FILES else inside.rpartition(".")[0])
    return found


def foreign_imports(module: str) -> set[str]:
    """The top names of what a module imports from outside the package."""
    return {name.partition(".")[0] for name in imported(FILES[module])} - {ROOT}


def part_of(module: str) -> str:
    """The longest name in MAY_IMPORT that *module* is, or is in."""
    names = [name for name in MAY_IMPORT if module == name or module.startswith(f"{name}.")]
    assert names, f"{module} belongs to no part of the package: add it to MAY_IMPORT."
    return max(names, key=len)


MODULES = [pytest.param(module, id=module or ROOT) for module in FILES]
LAZY = {""}  # type checkers alone follow the imports of the package itself


def test_the_package_is_read() -> None:
    assert {"", "keys", "store.contract", "components", "launcher", "cli"} <= FILES.keys()
    assert own_imports("config") == {"errors", "sharding"}
    assert "store.contract" in own_imports("store")
    assert foreign_imports("sharding") >= {"os", "re"}


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module: str) -> None:
    if module in LAZY:
        return
    allowed = MAY_IMPORT[part_of(module)]
    wrong = {name for name in own_imports(module) if part_of(name) not in allowed}
    assert not wrong, f"{module} may not import {wrong}"


def test_the_package_itself_imports_only_for_type_checkers() -> None:
    tree = ast.parse(FILES[""].read_text())
    names = [alias.name for node in tree.body for alias in getattr(node, "names", [])]
    assert names == ["annotations", "importlib", "TYPE_CHECKING", "Any"]


def test_there_is_no_circle() -> None:
    graph = {module: own_imports(module) - LAZY for module in FILES if module not in LAZY}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_no_store_imports_another() -> None:
    stores = {path.parent.name for path in PACKAGE.glob("store/*/__init__.py")}
    assert "sqlite" in stores
    for module in FILES:
        if module.startswith("store.") and (own := module.split(".")[1]) in stores:
            others = {
                name.split(".")[1] for name in own_imports(module) if name.startswith("store.")
            }
            assert not (others & stores) - {own}


@pytest.mark.parametrize("module", MODULES)
def test_only_the_components_import_scrapy(module: str) -> None:
    if not part_of(module).startswith("components"):
        assert not foreign_imports(module) & SCRAPY


@pytest.mark.parametrize("module", MODULES)
def test_third_parties_stay_where_they_are_needed(module: str) -> None:
    allowed = {
        "keys": {"w3lib"},
        "components": SCRAPY | {"w3lib"},
        "components.shard_command": SCRAPY,
        "launcher": {"rich"},
        "cli": {"rich", "shtab"},
    }
    third_parties = foreign_imports(module) - sys.stdlib_module_names
    assert third_parties <= allowed.get(part_of(module), set())
    if "sqlite3" in foreign_imports(module):
        assert module.startswith("store.sqlite")


@pytest.mark.parametrize("module", MODULES)
def test_every_module_says_what_it_is_about(module: str) -> None:
    words = set(module.replace("_", ".").split("."))
    assert not words & VAGUE
    assert ast.get_docstring(ast.parse(FILES[module].read_text()))


def modules_after(code: str, *arguments: str) -> set[str]:
    """The modules that a new interpreter has loaded after *code*."""
    script = f"import json, sys\n{code}\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *arguments],
        check=True,
        capture_output=True,
        cwd=PACKAGE.parent,
        timeout=120,
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def tops(modules: set[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


def test_importing_the_package_loads_nothing_of_it() -> None:
    loaded = modules_after("import scrapy_hexshard")
    assert {name for name in loaded if name.startswith(ROOT)} == {ROOT}


HELP = """
from scrapy_hexshard.cli import main
try:
    main(["--help"])
except SystemExit:
    print()
"""


@pytest.mark.parametrize(
    "code",
    [
        "import scrapy_hexshard.cli",
        "import scrapy_hexshard.launcher.launch, scrapy_hexshard.launcher.plan",
        "from scrapy_hexshard import ShardSpec, canonical_key, open_store, Work, RetryPolicy",
        HELP,
    ],
)
def test_no_command_loads_scrapy(code: str) -> None:
    assert not tops(modules_after(code)) & SCRAPY


def test_working_with_a_store_does_not_load_scrapy(tmp_path: Path) -> None:
    code = (
        "from scrapy_hexshard import SQLiteWorkStore, ShardSpec, open_store\n"
        "with SQLiteWorkStore(sys.argv[1], ShardSpec(0, 1)) as store:\n"
        "    assert store.enqueue(['http://h.example/1']) == 1\n"
        "    assert store.complete(*store.claim())\n"
        "with open_store('sqlite:///' + sys.argv[1]) as store:\n"
        "    assert store.counts(all_shards=True)['done'] == 1"
    )
    loaded = modules_after(code, str(tmp_path / "crawl.sqlite3"))
    assert f"{ROOT}.store.sqlite" in loaded
    assert not tops(loaded) & SCRAPY


def test_every_public_name_resolves() -> None:
    assert scrapy_hexshard.__all__ == sorted(set(scrapy_hexshard.__all__))
    for name in scrapy_hexshard.__all__:
        value = getattr(scrapy_hexshard, name)
        assert value.__name__ == name
        assert value.__module__.startswith(ROOT)
        assert value.__doc__


def test_a_type_checker_sees_the_same_public_names() -> None:
    tree = ast.parse(FILES[""].read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    names = [alias.name for node in block.body for alias in getattr(node, "names", [])]
    assert sorted(names) == scrapy_hexshard.__all__


def test_any_other_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Shard'"):
        _ = scrapy_hexshard.Shard
