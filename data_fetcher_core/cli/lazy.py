"""Commands that are loaded when they are asked for: reading the help costs nothing else."""

from __future__ import annotations

from importlib import import_module

import click

COMMANDS = {
    "crawl": "commands.crawl:crawl",
    "fetch": "commands.fetch:fetch",
    "sitemap": "commands.sitemap:sitemap",
    "api": "commands.api:api",
    "run": "commands.run:run",
    "resume": "commands.resume:resume",
    "work": "commands.resume:work",
    "runs": "commands.runs:runs",
    "status": "commands.runs:status",
    "dead": "commands.dead:dead",
    "forget": "commands.forget:forget",
    "doctor": "commands.doctor:doctor",
    "demo": "demo.command:demo",
}


class LazyGroup(click.Group):
    """Lists its commands in the order of the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(f"data_fetcher_core.cli.{module}"), name)
        return command
