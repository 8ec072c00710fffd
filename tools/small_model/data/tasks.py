"""Every task by its name, and the conversation that (task, seed, index) stands for. Needs nothing but Python."""
from . import arithmetic, chat, extract, lists, recall, render, stories, tools
from .draw import Draw

TASKS = {
    "arithmetic": lambda draw, longest: arithmetic.conversation(draw),
    "lists": lambda draw, longest: lists.conversation(draw),
    "json": lambda draw, longest: extract.conversation(draw),
    "tools": lambda draw, longest: tools.conversation(draw),
    "copy": lambda draw, longest: stories.copy_conversation(draw),
    "story": lambda draw, longest: stories.story_conversation(draw),
    "chat": lambda draw, longest: chat.conversation(draw),
    "recall": recall.conversation,
}
TASK_NAMES = tuple(TASKS)


def conversation(task, seed, index, longest, split="train"):
    draw = Draw(seed, task, index, split)
    return render.finished(draw, TASKS[task](draw, longest))
