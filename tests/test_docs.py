"""What the code blocks of the pages tell a reader to type is typed here, at a smaller scale."""

from __future__ import annotations

import ast
import io
import json
import re
import runpy
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks import __main__ as bench
from dsl._util.defaults import recipe_names
from dsl._util.registry import Registry
from dsl.cli.main import VERBS, main, usage
from dsl.data.catalogue import CORPORA
from dsl.data.catalogue import corpora as list_corpora
from dsl.evaluation import PACKAGED
from dsl.families.registry import FAMILIES
from dsl.samplers.registry import SAMPLERS, form, serving
from tests.llamas import small_teacher

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
FRONT = PAGES[0]
TYPED = [FRONT, *(pytest.param(page, marks=pytest.mark.slow) for page in PAGES[1:])]
"""The front door is tried with every test; the other pages, which take minutes, with the slow."""
TUNED = "dsl train text8-tiny(?:-finetune)? --init (?:runs/mdlm-dsl|text8-tiny)"
SHORT = " --set trainer.batch=2 --set trainer.steps=2 --set data.validation=2"
SMALLER = {
    r"^dsl data moses": "dsl data benzenes",
    r" --judge moses": " --reference benzenes",
    r"^torchrun --nproc-per-node \d+ -m ": "",
    r"^dsl compare stories-tiny(.*) stories-15000": r"dsl compare stories-tiny\1 stories.jsonl "
    "--length 32",
    r"(?<= )stories(-15000)?(?= |$)": "stories-40",
    r"\b(text8-prefix|english)\b(?!-)": "python-docs",
    rf"^({TUNED})": rf"\1{SHORT}",
    r"^(dsl train text8-tiny-finetune .*)": r"\1 --set data.corpus=python-docs",
    rf"^(?!{TUNED})dsl train (\S+)(?!\S| --smoke)": r"dsl train \1 --smoke",
    r" --init (mdlm-owt|runs/start(-dsl)?|runs/english-(start|masked))(?= |$)": "",
    r" --set data\.corpus=stories-\d+": "",
    r"\btrainer\.steps=\d+": "trainer.steps=2",
    r"\bSOURCE OUT\b": "runs/mdlm/model OUT",
    r"(?<=^dsl sample )-n \d\d\d+": "-n 24",
    r"(?<=@)1024": "8",
    r"(?<=^dsl sample -n 4 --sampler remdm-loop@)\d+": "8",
    r"(?<=--limit )\d\d\d+": "4",
    r"(?<=--budget )\d\d+": "16",
    r"^dsl (evaluate(?! repair| divergence)|compare) (.*)": r"dsl \1 \2 --features none "
    "--judge none",
    r"(?<=--length )128": "16",
    r"(?<=--steps )8 16( 32)?( 64)?( 128)?": "1 2",
    r"^dsl compare (.*)": r"dsl compare \1 -n 4 --seeds-drawn 2",
}
"""What is changed so that no network, no judge, one process and few seconds are enough."""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), flags=re.DOTALL)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory to work in, with a cache of its own and some texts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSL_CACHE", str(tmp_path / "cache"))
    small_teacher(tmp_path / "cache")
    Path("mine.txt").write_text("it was the best of times it was the worst of times " * 200)
    Path("lines.txt").write_text("the cat sat on\nthe capital of england\n")
    stories = [
        f"Once there were {n} cats in the garden, and they slept all day." for n in range(240)
    ]
    Path("stories.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in stories))
    damaged = "The govemment of the United Stetes was formed in the eigtheenth centuty."
    Path("page.txt").write_text(damaged)
    read = [{"word": word, "conf": 0.9} for word in damaged.split()]
    Path("words.json").write_text(json.dumps(read))
    Path("page.json").write_text(json.dumps(read * 5))
    Path("page.true.txt").write_text(" ".join([damaged] * 5))
    Path("gaps.txt").write_text("The cat [1] on the mat.\nTom went to the [2] with his dad.\n")
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_says_what_it_is(page: Path) -> None:
    """So that none is passed over below."""
    opened = re.findall(r"^ *```(.*)$", page.read_text(), flags=re.MULTILINE)[::2]
    assert set(opened) <= {"bash", "python"}


def test_there_is_something_to_type() -> None:
    typed = sum(len("".join(blocks(page, "bash")).splitlines()) for page in PAGES)
    assert typed > 30
    assert sum(len(blocks(page, "python")) for page in PAGES) > 5
    assert EXAMPLES


@pytest.mark.parametrize("page", TYPED, ids=lambda page: page.stem)
def test_python_blocks_run(page: Path, capsys: pytest.CaptureFixture[str], elsewhere: Path) -> None:
    namespace: dict[str, object] = {}
    for block in blocks(page, "python"):
        printed = [shown for shown in typed(block, namespace, capsys) if shown]
        assert printed, block


def typed(
    block: str, namespace: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> Iterator[str]:
    """Run a block and yield what each statement prints.

    A comment line directly after a `print(...)` must be its output.
    """
    lines = [*block.splitlines(), ""]
    for statement in ast.parse(block).body:
        exec(compile(ast.Module([statement], []), "block", "exec", dont_inherit=True), namespace)
        printed = capsys.readouterr().out
        after = lines[statement.end_lineno or 0]
        if ast.unparse(statement).startswith("print(") and after.startswith("#"):
            assert printed == after.removeprefix("# ") + "\n"
        yield printed


def test_outputs_in_comments_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    right = "print(1 + 1)\n# 2\n# The next is not compared.\nprint(3)\n\n# 4\nprint(\n    5\n)"
    assert list(typed(right, {}, capsys)) == ["2\n", "3\n", "5\n"]
    for wrong in ("print(2)\n# 3", "print(2)\n#2 ", "print('2\\n3')\n# 2"):
        with pytest.raises(AssertionError):
            list(typed(wrong, {}, capsys))


@pytest.mark.timeout(1800)  # the page on evaluation takes two minutes alone
@pytest.mark.parametrize("page", TYPED, ids=lambda page: page.stem)
def test_commands_run(page: Path, capsys: pytest.CaptureFixture[str], elsewhere: Path) -> None:
    for line in "".join(blocks(page, "bash")).replace("\\\n", " ").splitlines():
        command = shlex.join(shlex.split(line, comments=True))
        for pattern, smaller in SMALLER.items():
            command = re.sub(pattern, smaller, command)
        if not command.startswith("dsl "):
            assert_known(command)
            continue
        words = shlex.split(command)[1:]
        status = main(words)
        out, err = capsys.readouterr()
        if status and "It comes with the" in err:
            pytest.skip(err.strip())
        assert status == 0, f"{line}\n{err}"
        assert out or err, line


def assert_known(command: str) -> None:
    """Whatever else is typed is a target of the Makefile, or enters the environment."""
    if command.startswith("make "):
        assert f"\n{command.split()[1]}:" in (ROOT / "Makefile").read_text(), command
    elif match := re.match(r"(?:\.venv/bin/)?python -m (tools\.\w+|benchmarks)", command):
        path = ROOT / match[1].replace(".", "/")
        assert path.with_suffix(".py").is_file() or path.is_dir(), command
    else:
        assert command.startswith(("pip install ", "source ", "git clone ", "cd ", "uv ")), command


@pytest.mark.slow
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_examples_run(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr().out
    assert EXPECTED[script.stem] in printed


EXPECTED = {
    "doubtful_text": " The president of the United ",
    "paths_through_one_space": " 0.6   2.5   5.6  10.0  15.6  22.5  30.6  40.0 100.0",
    "which_is_likelier": " bits per letter  he lived in the city of london",
}
"""A line that each example prints."""


def quoted(page: Path) -> Iterator[str]:
    """What a page's text puts between single backticks, code blocks left out."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    yield from re.findall(r"`([^`\n]+)`", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_that_a_page_names_exist(page: Path) -> None:
    """Paths are relative to the repository, to src/dsl or to tests."""
    named = {n for n in quoted(page) if re.fullmatch(r"[\w./-]+(\.(py|yaml|txt)|/)", n)}
    written = {"model/", "site/", "page.txt", "FILE.py"}
    homes = (ROOT, ROOT / "src/dsl", ROOT / "tests")
    missing = {n for n in named - written if not any((home / n).exists() for home in homes)}
    assert missing == set()
    linked = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert {link for link in linked if not (page.parent / link).exists()} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_sections_that_a_page_links_to_exist(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]*)#([^)]*)\)", page.read_text())
    for file, section in links:
        text = (page.parent / file if file else page).read_text()
        titles = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
        assert section in {re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles}


def test_what_the_map_of_the_paper_names_exists() -> None:
    """Every file, function and test of docs/concepts.md, so that a reader finds them."""
    names = set(quoted(ROOT / "docs/concepts.md"))
    tests = {name for name in names if "::" in name}
    code = {name for name in names if re.fullmatch(r"[a-z_]+(\.[A-Za-z_]+)+", name)}
    code = {name for name in code if not name.endswith((".py", ".json", ".jsonl", ".yaml"))}
    assert len(tests) > 10
    assert len(code) > 20
    for name in tests:
        file, test = name.split("::")
        assert f"\ndef {test}(" in (ROOT / "tests" / file).read_text(), name
    for name in code:
        assert found(name), name


def found(name: str) -> bool:
    """Whether `module.function` or `package.module.Class` is in dsl."""
    value: object = import_module("dsl")
    for part in name.removeprefix("dsl.").split("."):
        if hasattr(value, part):
            value = getattr(value, part)
        elif hasattr(value, "__path__") and find_spec(f"{value.__name__}.{part}"):
            value = import_module(f"{value.__name__}.{part}")
        else:
            return False
    return True


def test_the_drawing_of_the_tree_names_every_package() -> None:
    text = (ROOT / "docs/concepts.md").read_text()
    homes = [*(ROOT / "src/dsl").iterdir(), *(ROOT / "src/dsl/apps").iterdir()]
    names = {f"{path.name}/" for path in homes if (path / "__init__.py").is_file()}
    assert {name for name in names if name not in text} == set()


def rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the table whose first heading this is."""
    text = (ROOT / page).read_text()
    (table,) = re.findall(rf"^\| {heading} \|.*\n\|-.*\n((?:\|.*\n)+)", text, flags=re.MULTILINE)
    return [re.split(r"(?<!\\) ?\| ?", line.strip("|\n ")) for line in table.splitlines()]


def column(page: str, heading: str) -> set[str]:
    """Return the names in backticks in the first column of a table."""
    return {name for row in rows(page, heading) for name in re.findall("`([^`]+)`", row[0])}


def test_tables_list_what_the_registries_have() -> None:
    samplers = column("docs/sampling.md", "name")
    assert samplers >= {form(name) for name in SAMPLERS}  # with an optional budget, both forms
    assert {name.partition("@")[0] for name in samplers} == set(SAMPLERS)
    assert column("docs/zoo.md", "family") == set(FAMILIES)
    corpora = column("docs/training.md", "name") - {"datasets:NAME"}
    numbered = {re.sub("-[NKV]$", "", name) for name in corpora}
    assert numbered == set(CORPORA)
    assert corpora - {f"{name}-{n}" for name in CORPORA for n in "NKV"} == set(list_corpora())
    assert column("docs/correcting.md", "format") == set(Registry("dsl.formats", "format"))
    training = (ROOT / "docs/training.md").read_text()
    listed = training.partition("The bundled recipes are in ")[2].partition("\n\n")[0]
    assert set(re.findall("`([^`]+)`", listed)) - {"recipes/"} == set(recipe_names())
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert column("docs/extending.md", "group") <= set(groups)
    text = (ROOT / "docs/extending.md").read_text()
    assert {group for group in groups if not re.search(rf"[`\"]{group}[`\"]", text)} == set()


def test_tables_of_families_name_their_protocol_and_samplers() -> None:
    protocols = {row[0].split("`")[1]: row[2] for row in rows("docs/extending.md", "protocol")}
    for name, family in FAMILIES.items():
        assert name in re.findall(r"\w+", protocols[family.protocol.__name__]), name
    for families, *_, named in rows("docs/zoo.md", "family"):
        for name in re.findall("`([^`]+)`", families):
            served = [
                form(sampler)
                for kind in (FAMILIES[name].protocol, *FAMILIES[name].protocol.__subclasses__())
                for sampler in serving_names(kind)
            ]
            assert set(re.findall("`([^`]+)`", named)) <= set(served), name


def serving_names(protocol: type) -> list[str]:
    """List the samplers that a network of a protocol serves, without their budgets."""
    return [form.partition("@")[0] for form in serving(protocol)]


def test_help_lists_what_the_registries_have(capsys: pytest.CaptureFixture[str]) -> None:
    for words, names in (
        (["--help"], VERBS),
        (["sample", "--help"], SAMPLERS),
        (["infill", "--help"], SAMPLERS),
        (["train", "--help"], [*recipe_names(), *FAMILIES]),
        (["data", "--help"], [*CORPORA, *PACKAGED]),
        (["evaluate", "--help"], Registry("dsl.measures", "measure")),
        (["correct", "--help"], Registry("dsl.formats", "format")),
        (["reproduce", "--help"], Registry("dsl.reproductions", "item")),
    ):
        with suppress(SystemExit):
            main(words)
        shown = capsys.readouterr().out
        assert {name for name in names if not re.search(rf"\b{name}\b", shown)} == set(), words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_options_that_a_page_names_exist(page: Path, options: set[str]) -> None:
    assert set(re.findall(OPTION, page.read_text())) <= options


OPTION = r"(?<![\w-])--[a-z][a-z0-9-]*"


@pytest.fixture(scope="module")
def options() -> set[str]:
    """What the help of any verb, or the source of the mutation script, names."""
    shown = io.StringIO()
    for verb in VERBS:
        with redirect_stdout(shown), suppress(SystemExit):
            main([verb, "--help"])
    for verb, group in (("evaluate", "dsl.measures"), ("reproduce", "dsl.reproductions")):
        for item in Registry[object](group, "item"):
            with redirect_stdout(shown), suppress(SystemExit):
                main([verb, item, "--help"])
    with redirect_stdout(shown), suppress(SystemExit):
        bench.main(["--help"])
    texts = shown.getvalue() + usage() + (ROOT / "tools/mutate.py").read_text()
    others = {"--nproc-per-node", "--strict", "--seed", "--python", "--torch-backend", "--no-deps"}
    return {*re.findall(OPTION, texts), *others}  # those of torchrun, mypy and uv
