"""Policies by name, by file and by module; and one clear message where there is none."""

from pathlib import Path

import pytest

from arcsim.policies.base import EngineConfig, Policy
from arcsim.policies.continuous import Continuous
from arcsim.policies.find import PolicyNotFound, find_policy, known_policies
from arcsim.policies.mistralrs_paged import MistralrsPaged

from .serving import request, serve

MINE = """
from arcsim.policies.base import Policy
from arcsim.policies.continuous import Continuous

class Mine(Continuous):
    pass

class Half(Policy):
    def add(self, sequence): ...
    def schedule(self, now): ...

NOT_A_POLICY = 3
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    return tmp_path


def test_a_policy_goes_by_the_name_of_its_file() -> None:
    known = known_policies()
    assert known["continuous"] is find_policy("continuous") is Continuous
    assert known["mistralrs_paged"] is find_policy("mistralrs_paged") is MistralrsPaged
    assert "base" not in known and list(known) == sorted(known)


def test_every_known_policy_can_be_built_from_its_defaults() -> None:
    for policy in known_policies().values():
        engine = EngineConfig(**policy.engine_defaults)
        built = policy(engine, policy.Options())
        assert built.resolved_options().keys() == policy.Options.model_fields.keys()
        assert not built.waiting and not built.running and policy.__doc__


def test_every_option_says_what_it_is() -> None:
    fields = [field for policy in known_policies().values() for field in policy.Options.model_fields.values()]
    assert fields and all(field.description for field in fields)


@pytest.mark.parametrize(("name", "hint"), [("continous", "did you mean continuous?"), ("nothing_like_it", "known: ")])
def test_an_unknown_name_lists_what_there_is(name: str, hint: str) -> None:
    with pytest.raises(PolicyNotFound, match=f"no policy '{name}'") as error:
        find_policy(name)
    assert hint in str(error.value) and "continuous, mistralrs_dense, mistralrs_paged" in str(error.value)


def test_a_file_is_looked_for_beside_the_experiment_then_here(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = mine / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.py").write_text(MINE.replace("Mine", "Other"), encoding="utf-8")
    monkeypatch.chdir(mine)
    assert find_policy("mine.py:Mine").__name__ == "Mine"
    assert find_policy("./mine.py:Mine", elsewhere / "nowhere").__name__ == "Mine"
    assert find_policy("mine.py:Other", elsewhere).__name__ == "Other"
    assert find_policy(f"{mine}/mine.py:Mine").__name__ == "Mine"


def test_a_policy_of_ones_own_runs(mine: Path) -> None:
    policy = find_policy("mine.py:Mine", mine)
    built = policy(EngineConfig(num_blocks=50), policy.Options())
    assert serve(built, [request("a", 5, 3)]).outcome == "completed"


@pytest.mark.parametrize(("name", "problem"), [
    ("mine.py:Nobody", "has no policy 'Nobody' (policies in it: Mine, Half)"),
    ("mine.py:NOT_A_POLICY", "has no policy 'NOT_A_POLICY'"),
    ("mine.py:Half", "Half in mine.py lacks abort, commit"),
    ("gone.py:Mine", "no file gone.py in "),
    ("no.such.module:Mine", "no.such.module cannot be imported: ModuleNotFoundError"),
    ("arcsim.policies.base:Policy", "lacks abort, add, commit, schedule"),
])
def test_what_cannot_be_found_is_said(mine: Path, name: str, problem: str) -> None:
    with pytest.raises(PolicyNotFound) as error:
        find_policy(name, mine)
    assert problem in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(("text", "problem"), [
    ("def broken(:\n", "SyntaxError"), ("import no_such_thing\n", "ModuleNotFoundError"), ("1 / 0\n", "ZeroDivision"),
])
def test_a_file_that_does_not_import_says_why(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "bad.py").write_text("# a comment\n" + text, encoding="utf-8")
    with pytest.raises(PolicyNotFound, match=f"bad.py cannot be imported: {problem}") as error:
        find_policy("bad.py:Mine", tmp_path)
    assert problem != "SyntaxError" or "line 2" in str(error.value)


def test_a_module_is_imported_by_its_dotted_name() -> None:
    found: type[Policy] = find_policy("arcsim.policies.continuous:Continuous")
    assert found is Continuous
