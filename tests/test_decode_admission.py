"""Who decides whether a ragged batch may decode, and that a refusal names itself."""

import pytest

from arcsim.policies.decode_admission import SWITCH, DecodeAdmission

from .serving import paged


@pytest.mark.parametrize("value", [None, "", "0", "true", "True", "yes", "2", " 1", "1 ", "01"])
def test_ragged_is_granted_unless_the_switch_is_exactly_1(value: str | None) -> None:
    """(Mutation tried: any value of the switch refuses.)"""
    environment = {} if value is None else {SWITCH: value}
    assert DecodeAdmission.decide(environment=environment) == DecodeAdmission("ragged", None)


def test_the_switch_refuses_and_is_named() -> None:
    assert SWITCH == "ARC_SCHED_BUCKETED_DECODE"
    decided = DecodeAdmission.decide(environment={SWITCH: "1"})
    assert decided == DecodeAdmission("bucketed", "ARC_SCHED_BUCKETED_DECODE=1")
    assert "refused by ARC_SCHED_BUCKETED_DECODE=1" in str(decided) and "\n" not in str(decided)


def test_an_option_goes_before_the_switch() -> None:
    on = {SWITCH: "1"}
    assert DecodeAdmission.decide("ragged", on) == DecodeAdmission("ragged", None)
    assert DecodeAdmission.decide("bucketed", {}) == DecodeAdmission("bucketed", "policy.decode")
    assert "refused by policy.decode" in str(DecodeAdmission.decide("bucketed", {}))
    assert "refused" not in str(DecodeAdmission.decide("ragged", on))


def test_the_policy_says_once_what_was_decided_and_records_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "1")
    refused = paged()
    monkeypatch.delenv(SWITCH)
    assert refused.notes() == [str(DecodeAdmission("bucketed", f"{SWITCH}=1"))]  # read once, when it is built
    assert refused.options.model_dump()["decode"] is None and refused.resolved_options()["decode"] == "bucketed"
    granted = paged()
    assert len(granted.notes()) == 1 and granted.resolved_options()["decode"] == "ragged"
