"""Prompts as text: words, so common that tokenizers of byte pairs have a token for each."""

from hashlib import shake_128

from .pieces import Prompt

_TEXT = """
    the of and to in is that for it as was with be by on not he his but at are this have from or had an they which
    one you were all her she there would their we him been has when who will no more if out so up said what its
    about than into them can only other time new some could these two may first then do any like my now over such
    our man me even most made after also did many off before must well back through years much where your way down
    should because long each just state people those too how little good world make very year still see own work men
    day get here old life both between being under three never know same last another while us might great go come
    since against right came take used himself few house use place during high without again home around small
    however found mind thought went say part once general school every does got united left number course war until
    always away something fact water though less public put think almost hand enough far took head yet government
    system better set told nothing night end why called look find going asked later point next give group among
    given large order face big best love side city room light half top open white story hope car able turn book
    power road king line land air body form free game hard idea keep money play real rest sea sense ship
"""
WORDS = tuple(_TEXT.split())
"""One for each value of a byte."""


def text_of(prompt: Prompt) -> str:
    """A word for every token. Equal content gives equal words from the first on."""
    return " ".join(WORDS[byte] for name, length in prompt for byte in _stream(name, length))


def _stream(name: int | str, length: int) -> bytes:
    return shake_128(repr(name).encode()).digest(length)
