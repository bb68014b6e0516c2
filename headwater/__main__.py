"""The program `headwater`."""

from __future__ import annotations

from headwater.common import interrupts, memory


def main() -> None:
    """Run the command line; Ctrl-C ends it in one line from here on."""
    try:
        interrupts.watch()
        memory.choose_allocators()
        from headwater import cli

        cli.main()
    except KeyboardInterrupt:
        interrupts.leave()


if __name__ == "__main__":
    main()
