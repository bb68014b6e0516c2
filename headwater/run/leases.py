"""The leases of a run's flows: each is of the generation of its table that is live."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from headwater.errors import LeaseError
from headwater.storage import mailbox
from headwater.storage.lake import Lake
from headwater.storage.lease import Lease

LOOK = 0.2  # seconds between two tries to get the lease that whoever made a generation still holds


class Leases:
    """What one run may write.

    Args:
        lake: the lake.
        stops: waits for so many seconds, or less if the run is to end; whether it is.
    """

    def __init__(self, lake: Lake, stops: Callable[[float], bool]) -> None:
        self._lake = lake
        self._stops = stops
        self._held: dict[str, Lease] = {}

    def take(self, names: Iterable[str]) -> None:
        """Take those of several tables, or none.

        Raises:
            LeaseError: another process holds one.
        """
        try:
            for name in names:
                self._held[name] = self._begun(name)
        except BaseException:
            self.release()
            raise

    def follow(self, name: str) -> bool:
        """Hold the lease of the generation that is live, once whoever made it has let go.

        Returns:
            Whether it is another than before; False too when the run ends.

        Raises:
            OSError: the medium failed; the next call goes on from there.
        """
        if self.holds(name):
            return False
        if name in self._held:
            self._held.pop(name).release()
        while True:
            with suppress(LeaseError):
                self._held[name] = self._begun(name)
                return True
            if self._stops(LOOK):
                return False

    def _begun(self, name: str) -> Lease:
        lease = Lease(name, self._lake.flow_folder(name))
        try:
            mailbox.drop(lease.folder)
        except BaseException:
            lease.release()
            raise
        return lease

    def holds(self, name: str) -> bool:
        """Whether the run may write a table's live generation."""
        return name in self._held and self._held[name].folder == self._lake.flow_folder(name)

    def release(self) -> None:
        """Give all back; nothing may be written after."""
        while self._held:
            self._held.popitem()[1].release()
