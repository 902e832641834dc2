"""Whether mistral.rs's dense scheduler may decode mixed lengths together, and who refused it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RaggedAdmission:
    """What the pipeline declares of itself: `refusal` is None where it is granted, else the reason."""

    refusal: str | None

    @property
    def granted(self) -> bool:
        return self.refusal is None

    def __str__(self) -> str:
        if self.refusal is None:
            return "ragged admission: granted (all decoding sequences share a forward pass, whatever their lengths)"
        return f"ragged admission: refused, {self.refusal} (only sequences of one length share a forward pass)"
