"""Iterating over a subscriber: `for`, `async for`, cancellation, and closing while somebody waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import holdfast as hf
from holdfast.clock import SystemClock
from holdfast.errors import Fenced
from holdfast.store._delivery import Delivery
from holdfast.store._subscriber import Subscriber
from store.storekit import TOPIC, batch, until
from store.subkit import WAIT, Background, now, numbers, put, simulated, unfinished, watermark


@pytest.fixture
def store() -> hf.Store:
    return simulated(clock=SystemClock())


async def first(sub: Subscriber, count: int) -> list[int]:
    """Take and ack so many, one by one."""
    found: list[int] = []
    async for delivery in sub:
        delivery.ack()
        found += numbers([delivery])
        if len(found) == count:
            break
    return found


def test_for_loop_ends_when_the_subscriber_is_closed(store: hf.Store) -> None:
    """A loop gets what there is, waits for more, and ends without an error at close."""
    with store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1)
        sub = topic.subscribe("lake")
        found: list[int] = []

        def loop() -> None:
            for delivery in sub:
                found.extend(numbers([delivery]))
                delivery.ack()

        looping = Background(loop)
        until(lambda: len(found) == 2 and sub._waiting)
        put(topic, 2)
        until(lambda: len(found) == 3 and sub._waiting)
        sub.close()
        looping.result()
        assert found == [0, 1, 2]
        assert unfinished(topic, "lake") == []


def test_closing_inside_the_loop_ends_it(store: hf.Store) -> None:
    """A loop whose body closes the subscriber has no further round."""
    with store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1, 2)
        sub = topic.subscribe("lake")
        found = []
        for delivery in sub:
            found += numbers([delivery])
            delivery.ack()
            sub.close()
        assert found == [0]
        assert unfinished(topic, "lake") == [1, 2]


def test_closing_the_store_ends_a_loop(store: hf.Store) -> None:
    """Whoever waits in a loop is let go when the store closes."""
    sub = store.topic(TOPIC).subscribe("lake")
    looping = Background(lambda: list(sub))
    until(lambda: sub._waiting)
    store.close()
    assert looping.result() == []


def test_loop_of_a_fenced_holder_raises(store: hf.Store) -> None:
    """Being fenced is not the normal end of a loop."""
    with store:
        topic = store.topic(TOPIC)
        sub = topic.subscribe("lake")
        looping = Background(lambda: list(sub))
        until(lambda: sub._waiting)
        with topic.subscribe("lake", takeover=True), pytest.raises(Fenced):
            looping.result()


def test_async_for_waits_without_blocking_the_loop(store: hf.Store) -> None:
    """While it waits for data other tasks of the event loop run, one of which appends what it waits for."""

    async def main() -> list[int]:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake") as sub:
            reading = asyncio.create_task(first(sub, 4))
            for number in (1, 2, 3):
                await asyncio.sleep(0)
                await topic.append({"logs": batch(number)}, attributes={"id": number})
            return await asyncio.wait_for(reading, WAIT)

    with store:
        assert asyncio.run(main()) == [0, 1, 2, 3]


def test_several_async_subscribers_in_one_event_loop(store: hf.Store) -> None:
    """Many subscribers wait in one loop, and each gets everything; another thread appends."""
    count = 8

    async def main() -> list[list[int]]:
        topic = store.topic(TOPIC)
        subs = [topic.subscribe(f"sub-{number}") for number in range(count)]
        tasks = [asyncio.create_task(first(sub, 20)) for sub in subs]
        await asyncio.sleep(0)
        appending = Background(lambda: [put(topic, number) for number in range(20)])
        found = await asyncio.wait_for(asyncio.gather(*tasks), WAIT)
        appending.result()
        for sub in subs:
            sub.close()
        return found

    with store:
        assert asyncio.run(main()) == [list(range(20))] * count


def test_async_tasks_that_share_a_subscriber(store: hf.Store) -> None:
    """Two tasks over one subscriber get each bundle once between them."""

    async def main() -> list[int]:
        topic = store.topic(TOPIC)
        found: list[int] = []
        with topic.subscribe("lake") as sub:

            async def work() -> None:
                async for delivery in sub:
                    delivery.ack()
                    found.extend(numbers([delivery]))

            tasks = [asyncio.create_task(work()) for _ in range(2)]
            await asyncio.sleep(0)
            for number in range(30):
                await topic.append({"logs": batch(number)}, attributes={"id": number})
            while len(found) < 30:
                await asyncio.sleep(0.001)
            sub.close()
            await asyncio.wait_for(asyncio.gather(*tasks), WAIT)
        return found

    with store:
        assert sorted(asyncio.run(main())) == list(range(30))


def test_cancelled_wait_loses_nothing(store: hf.Store) -> None:
    """A task that is cancelled while it waits leaves the subscriber usable, and nothing in hand."""

    async def main() -> list[int]:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake") as sub:
            for _ in range(3):
                task = asyncio.create_task(first(sub, 1))
                await asyncio.sleep(0.01)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert sub.statistics().in_flight == 0
            put(topic, 0, 1)
            return await asyncio.wait_for(first(sub, 2), WAIT)

    with store:
        assert asyncio.run(main()) == [0, 1]


def test_cancelled_waits_do_not_pile_up(store: hf.Store) -> None:
    """A thousand waits that were given up leave nothing behind in the subscriber."""

    async def main() -> int:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake") as sub:
            for _ in range(200):
                task = asyncio.create_task(first(sub, 1))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            return len(sub._waiting.callbacks)

    with store:
        assert asyncio.run(main()) < 10


def test_cancelled_in_the_body_of_a_delivery(store: hf.Store) -> None:
    """A task that is cancelled inside `with delivery` gives the bundle back, and it costs no attempt."""

    async def work(sub: Subscriber, reached: asyncio.Event) -> None:
        async for delivery in sub:
            with delivery:
                reached.set()
                await asyncio.sleep(WAIT)

    async def main() -> None:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake", max_attempts=1, retry_initial=0.001, retry_max=0.001) as sub:
            reached = asyncio.Event()
            task = asyncio.create_task(work(sub, reached))
            await asyncio.wait_for(reached.wait(), WAIT)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert sub.statistics().rejected == 0
            assert await asyncio.wait_for(first(sub, 1), WAIT) == [0]

    with store:
        asyncio.run(main())


def test_closing_while_an_async_loop_waits(store: hf.Store) -> None:
    """An `async for` that waits ends without an error when the subscriber is closed, by a task or by a thread."""

    async def main(*, by_thread: bool) -> list[int]:
        topic = store.topic(TOPIC)
        sub = topic.subscribe("lake")
        task = asyncio.create_task(first(sub, 99))
        await asyncio.sleep(0.01)
        if by_thread:
            Background(sub.close)
        else:
            sub.close()
        return await asyncio.wait_for(task, WAIT)

    with store:
        assert asyncio.run(main(by_thread=False)) == []
        assert asyncio.run(main(by_thread=True)) == []


def test_fenced_while_an_async_loop_waits(store: hf.Store) -> None:
    """A takeover wakes an `async for` that waits, which then raises `Fenced`."""

    async def main() -> None:
        topic = store.topic(TOPIC)
        sub = topic.subscribe("lake")
        task = asyncio.create_task(first(sub, 1))
        await asyncio.sleep(0.01)
        with topic.subscribe("lake", takeover=True), pytest.raises(Fenced):
            await asyncio.wait_for(task, WAIT)

    with store:
        asyncio.run(main())


def test_async_loop_wakes_for_a_retry(store: hf.Store) -> None:
    """An `async for` that waits gets a bundle again when its retry is due."""

    async def main() -> list[int]:
        topic = store.topic(TOPIC)
        put(topic, 0)
        attempts = []
        with topic.subscribe("lake") as sub:
            deliveries: AsyncIterator[Delivery] = aiter(sub)
            for _ in range(3):
                delivery = await asyncio.wait_for(anext(deliveries), WAIT)
                attempts.append(delivery.attempt)
                delivery.nack("away", retry_in=0.01)
        return attempts

    with store:
        assert asyncio.run(main()) == [1, 2, 3]


def test_async_loop_left_early_keeps_the_rest(store: hf.Store) -> None:
    """Breaking out of the loop takes nothing beyond what the body saw."""

    async def main(sub: Subscriber) -> list[int]:
        return await first(sub, 1)

    with store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1, 2)
        with topic.subscribe("lake") as sub:
            assert asyncio.run(main(sub)) == [0]
            assert numbers(now(sub)) == [1, 2]
            sub.flush()
            assert watermark(topic, "lake") == 1
