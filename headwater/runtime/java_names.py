"""What a name of Java's stands for, asked once: PySpark asks at each use of a function, which is two calls of
the JVM for each that does something."""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, JVMView


class JavaNames(JVMView):  # type: ignore[misc]
    """What the JVM has, by name; it remembers the classes.

    Args:
        view: the same as py4j has it, which asks each time.
    """

    def __init__(self, view: JVMView) -> None:
        self.__dict__.update(view.__dict__)  # to Java it is the same one, with the same imports

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaClass):
            found = self.__dict__[name] = _Class(found._fqn, found._gateway_client)
        return found


class _Class(JavaClass):  # type: ignore[misc]
    """A class; it remembers its static methods."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaMember):
            self.__dict__[name] = found
        return found
