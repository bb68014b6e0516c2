"""Nexmark's events: people, auctions and bids of an auction house, 1 : 3 : 46 of every 50.

The model is that of the published benchmark (Tucker, Tufte, Papadimos, Maier: NEXMark, 2002, as Apache Beam's
generator has it): the number of an event says its kind and, with it, which people and auctions there are;
half of the bids go to the newest hundredth auction, three of four come from, and three of four auctions are
of, the newest hundredth person; others are of one of the 1,000 newest people and 100 newest auctions, or of
one that is about to come. An auction is open for about twice as long as a hundred auctions take to come.
Prices are 100 * 10^(6 * a number in [0, 1)) cents. `extra` fills an event up to the specified size.

With `late` faults events arrive after up to LATE others: with its own time, each still comes once.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from headwater.connectors.produce import Faults, Record, Topic

PERSON, AUCTION, BID = "nexmark-person", "nexmark-auction", "nexmark-bid"
topics = [Topic(PERSON, partitions=2), Topic(AUCTION, partitions=2), Topic(BID, partitions=4)]
shown = "gold.q4 ORDER BY category"

TOTAL, PEOPLE, AUCTIONS = 50, 1, 3  # of so many events, so many are people, so many auctions
FIRST, FIRST_CATEGORY, CATEGORIES = 1_000, 10, 5
ACTIVE_PEOPLE, OPEN_AUCTIONS = 1_000, 100
HOT_AUCTIONS, HOT_SELLERS, HOT_BIDDERS = 2, 4, 4  # one of so many is not for the hot one
HOT = 100  # each so many-th person and auction is a hot one
AHEAD = 10  # so many people and auctions are named before they come
SIZES = {PERSON: 200, AUCTION: 500, BID: 100}  # bytes
LATE = 400

STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
OTHER_CHANNELS = 10_000

Draw = Callable[[], float]


def records(*, seed: int, faults: Faults, clock: Iterator[int]) -> Iterator[Record]:
    """Events without end; `headwater.connectors.produce` says what the arguments mean and what is promised.

    Of the faults it knows `late` alone.
    """
    draw = random.Random(seed).random
    shares = faults.spread(malformed=0, invalid=0)
    held: list[tuple[int, Record]] = []  # (the number of the event that it comes before, the record)
    before = next(clock)
    for number, now in zip(count(), clock, strict=False):
        topic, event = _event(draw, number, before, max(1, now - before))
        before = now
        value = json.dumps(event, separators=(",", ":")).encode()
        key = str(event["id" if topic != BID else "auction"]).encode()
        if draw() < shares.late:
            held.append((number + 1 + int(draw() * LATE), Record(topic, key, value, fault="late")))
            record = None
        else:
            record = Record(topic, key, value)
        for due in [each for each in held if each[0] <= number]:
            held.remove(due)
            yield due[1]
        if record is not None:
            yield record


def _event(draw: Draw, number: int, now: int, step: int) -> tuple[str, dict[str, Any]]:
    """The topic and the fields of the event of a number, at a time, where the next one is `step` ms later."""
    epoch, place = divmod(number, TOTAL)
    if place < PEOPLE:
        return PERSON, _filled(draw, _person(draw, epoch * PEOPLE + place, now), SIZES[PERSON])
    if place < PEOPLE + AUCTIONS:
        return AUCTION, _filled(draw, _auction(draw, number, now, step), SIZES[AUCTION])
    return BID, _filled(draw, _bid(draw, number, now), SIZES[BID])


def _person(draw: Draw, number: int, now: int) -> dict[str, Any]:
    at = int(draw() * len(CITIES))
    first, last = FIRST_NAMES[int(draw() * len(FIRST_NAMES))], LAST_NAMES[int(draw() * len(LAST_NAMES))]
    return {
        "id": FIRST + number,
        "name": f"{first} {last}",
        "email_address": f"{_text(draw, 7)}@{_text(draw, 5)}.com",
        "credit_card": " ".join(f"{int(draw() * 10_000):04d}" for _ in range(4)),
        "city": CITIES[at],
        "state": STATES[int(draw() * len(STATES))],
        "date_time": now,
    }


def _auction(draw: Draw, number: int, now: int, step: int) -> dict[str, Any]:
    hot = int(draw() * HOT_SELLERS) > 0
    newest = _newest_person(number)
    initial = _price(draw)
    horizon = OPEN_AUCTIONS * TOTAL // AUCTIONS * step  # until so many further auctions have come
    return {
        "id": FIRST + _newest_auction(number),
        "item_name": _text(draw, 20),
        "description": _text(draw, 100),
        "initial_bid": initial,
        "reserve": initial + _price(draw),
        "date_time": now,
        "expires": now + 1 + int(draw() * max(2 * horizon, 1)),
        "seller": FIRST + (newest // HOT * HOT if hot else _any_person(draw, newest)),
        "category": FIRST_CATEGORY + int(draw() * CATEGORIES),
    }


def _bid(draw: Draw, number: int, now: int) -> dict[str, Any]:
    auction, newest = _newest_auction(number), _newest_person(number)
    if int(draw() * HOT_AUCTIONS) > 0:
        auction = auction // HOT * HOT
    else:
        oldest = max(auction - OPEN_AUCTIONS, 0)
        auction = oldest + int(draw() * (auction - oldest + 1 + AHEAD))
    bidder = newest // HOT * HOT + 1 if int(draw() * HOT_BIDDERS) > 0 else _any_person(draw, newest)
    known = int(draw() * 2) > 0
    other = int(draw() * OTHER_CHANNELS)
    channel = CHANNELS[other % len(CHANNELS)] if known else f"channel-{other}"
    return {
        "auction": FIRST + auction,
        "bidder": FIRST + bidder,
        "price": _price(draw),
        "channel": channel,
        "url": f"https://www.nexmark.com/{_text(draw, 5)}/item.htm?query=1&channel_id={other}",
        "date_time": now,
    }


def _newest_person(number: int) -> int:
    """The number of the newest person, from 0, when the event of a number comes."""
    epoch, place = divmod(number, TOTAL)
    return epoch * PEOPLE + min(place, PEOPLE - 1)


def _newest_auction(number: int) -> int:
    """The number of the newest auction, from 0; it may be about to come."""
    epoch, place = divmod(number, TOTAL)
    if place < PEOPLE:
        epoch, place = epoch - 1, TOTAL
    return max(0, epoch * AUCTIONS + min(place - PEOPLE, AUCTIONS - 1))


def _any_person(draw: Draw, newest: int) -> int:
    active = min(newest + 1, ACTIVE_PEOPLE)
    return newest + 1 - active + int(draw() * (active + AHEAD))


def _price(draw: Draw) -> int:
    return round(10 ** (draw() * 6) * 100)


def _text(draw: Draw, length: int) -> str:
    """Letters, drawn in groups of five: to draw each would take most of an event's time."""
    found = ""
    while len(found) < length:
        at = int(draw() * 26**5)
        for _ in range(5):
            at, letter = divmod(at, 26)
            found += chr(97 + letter)
    return found[:length]


_FILLING = "the quick brown fox jumps over the lazy dog " * 16


def _filled(draw: Draw, event: dict[str, Any], size: int) -> dict[str, Any]:
    """With `extra` up to about a size: a part of one text, as nobody reads it."""
    room = size - sum(len(value) if isinstance(value, str) else 8 for value in event.values())
    begin = int(draw() * 44)
    return {**event, "extra": _FILLING[begin : begin + max(room, 0)]}
