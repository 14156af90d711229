#!/usr/bin/env python3
"""Oracle of the chat templates: writes tests/golden/chat_templates.json.

    python3 scripts/oracle/chat_templates.py [--check]
    python3 scripts/oracle/chat_templates.py --templates DIR --write FILE

jinja2, set up as in transformers, renders conversations with one or more templates of each family that the engine knows
by name. The templates were written for this script. They are short and contain the expressions by which the engine
recognises the original ones. Templates that write the date get 26 July 2024.
The second form takes templates (*.jinja) from the folder DIR instead. With SPECLAB_CHAT_TEMPLATES=FILE the C++ test reads
FILE; the engine must refuse each template of FILE or render it exactly.
--check writes nothing and exits 1 if the golden file would change. Needs transformers and jinja2.
"""

import argparse
import datetime
import hashlib
import json
import pathlib
import sys

import jinja2
from transformers.utils.chat_template_utils import _compile_jinja_template

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/chat_templates.json"
BOS, EOS = "<s>", "</s>"

TURNS = [
    [("user", "What is 2+2?")],
    [("user", "  spaces \n\u3000and\tlines \x1f\n")],
    [("user", "Ünïcödé 你好"), ("assistant", " 4. \n"), ("user", "\nWhy? ")],
    [("user", "a"), ("assistant", "<think>\nhm, hm\n</think>\n\nb"), ("user", "c")],
    [
        ("user", "a"),
        ("assistant", "<think>x</think>y</think>\n z "),
        ("user", "c"),
        ("assistant", "\nd"),
        ("user", "e"),
    ],
    [("user", "<tool_response>\n3\n</tool_response>"), ("assistant", ""), ("user", 'it\'s "quoted" {{ x }} {% y %}')],
]
SYSTEM = ["Answer in one word.", " Be brief.\n\n"]


def conversations():
    for turns in TURNS:
        for system in [None] + SYSTEM:
            head = [] if system is None else [("system", system)]
            yield [{"role": role, "content": content} for role, content in head + turns]


RAISE = "{{ raise_exception('roles must alternate') }}"
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
DEFAULT = "{{% if messages[0]['role'] != 'system' %}}{{{{ '<|im_start|>system\\n{}<|im_end|>\\n' }}}}{{% endif %}}"
HEADS = "{% if messages[0]['role'] == 'system' %}{% set system_message = messages[0]['content'] %}{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}"
PARITY = "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}" + RAISE + "{% endif %}"


def qwen3_like(answer, generation):
    return (
        "{% for message in messages %}{% if message.role == 'user' or message.role == 'system' %}"
        "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}"
        "{% elif message.role == 'assistant' %}" + answer + "{{ '<|im_end|>\\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ " + generation + " }}{% endif %}"
    )


QWEN3 = (
    "{% set ns = namespace(open=true, last_query_index=messages|length - 1) %}{% for message in messages[::-1] %}"
    "{% if ns.open and message.role == 'user' and not(message.content.startswith('<tool_response>') and "
    "message.content.endswith('</tool_response>')) %}{% set ns.open = false %}"
    "{% set ns.last_query_index = messages|length - 1 - loop.index0 %}{% endif %}{% endfor %}"
) + qwen3_like(
    "{% set content = message.content %}{% set thoughts = '' %}{% if '</think>' in content %}"
    "{% set thoughts = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}"
    "{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
    "{{ '<|im_start|>' + message.role }}"
    "{% if loop.index0 > ns.last_query_index and (loop.last or thoughts) %}"
    "{{ '\\n<think>\\n' + thoughts.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}{% else %}{{ '\\n' + content }}{% endif %}",
    "'<|im_start|>assistant\\n' + ('<think>\\n\\n</think>\\n\\n' if enable_thinking is defined and not enable_thinking else '')",
)
QWQ = qwen3_like(
    "{% set content = message.content %}{% if not loop.last %}"
    "{% set content = message.content.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
    "{{ '<|im_start|>assistant\\n' + content }}",
    "'<|im_start|>assistant\\n<think>\\n'",
)
SMOLLM3 = (
    "{% if messages[0].role == 'system' %}{% set own = messages[0].content.rstrip() %}{% endif %}{# /system_override #}"
    "{{ '<|im_start|>system\\n## Metadata\\n\\nKnowledge Cutoff Date: June 2025\\n' }}"
    "{{ 'Today Date: ' ~ strftime_now('%d %B %Y') ~ '\\n' }}{{ 'Reasoning Mode: ' + '/think' + '\\n\\n' }}"
    "{{ '## Custom Instructions\\n\\n' }}{% if own %}{{ own + '\\n\\n' }}{% else %}"
    '{{ "You are a helpful AI assistant named SmolLM. It\'s <think> first.\\n\\n" }}{% endif %}'
    "{% for message in messages %}{% if message.role == 'user' %}{{ '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}"
    "{% elif message.role == 'assistant' %}{{ '<|im_start|>assistant\\n' + message.content.lstrip('\\n') + '<|im_end|>\\n' }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
LLAMA3 = (
    "{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ "
    "message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
    "{{ content }}{% endfor %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
)
LLAMA31 = (
    "{{- bos_token }}" + HEADS + "{% set date_string = strftime_now('%d %b %Y') %}"
    '{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}{{- "Cutting Knowledge Date: December 2023\\n" }}'
    '{{- "Today Date: " + date_string + "\\n\\n" }}{{ system_message | trim }}{{- "<|eot_id|>" }}'
    "{% for message in rest %}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ "
    "message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)
LLAMA2 = (
    HEADS + "{% for message in rest %}" + PARITY + "{% set content = message['content'] %}"
    "{% if loop.index0 == 0 and system_message is defined %}"
    "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% endif %}"
    "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% else %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)


def mistral(user, answer, system=None, where="loop.last"):
    """A template of the Mistral kind. user: (text before the user's message, text after it); answer: the tag that writes an
    answer; system: text between the system message and the user's message; where: a condition of the template; it holds for
    the user's message that the system message is written before."""
    before, after = user
    plain = f"'{before}' + message['content'] + '{after}'"
    body = "{{ " + plain + " }}"
    if system is not None:
        with_system = f"'{before}' + system_message + '{system}' + message['content'] + '{after}'"
        body = (
            "{% if "
            + where
            + " and system_message is defined %}{{ "
            + with_system
            + " }}{% else %}"
            + body
            + "{% endif %}"
        )
    head = HEADS if system is not None else "{% set rest = messages %}"
    return (
        "{{ bos_token }}"
        + head
        + "{% for message in rest %}"
        + PARITY
        + "{% if message['role'] == 'user' %}"
        + body
        + "{% else %}"
        + answer
        + "{% endif %}{% endfor %}"
    )


def mistral7(system, user, answer):
    return (
        "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '"
        + user
        + "' + message['content'] + '[/INST]' }}{% elif message['role'] == 'system' %}{{ '"
        + system
        + "' + message['content'] + '[/SYSTEM_PROMPT]' }}{% else %}{{ "
        + answer
        + " }}{% endif %}{% endfor %}"
    )


def by_role(texts, generation, begin="{{ bos_token }}"):
    """A template that writes each message by its role. texts: role -> expression."""
    out = begin + "{% for message in messages %}"
    for i, (role, text) in enumerate(texts.items()):
        out += "{% " + ("if" if i == 0 else "elif") + " message['role'] == '" + role + "' %}{{ " + text + " }}"
    return out + "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ " + generation + " }}{% endif %}"


GEMMA = (
    "{{ bos_token }}HEAD{% for message in rest %}"
    + PARITY
    + "{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "{{ '<start_of_turn>' + role + '\\n' + PREFIXmessage['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}"
)
GEMMA2 = GEMMA.replace("PREFIX", "").replace(
    "HEAD",
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% set rest = messages %}",
)
GEMMA3 = GEMMA.replace("PREFIX", "(first_user_prefix if loop.first else '') + ").replace(
    "HEAD", HEADS + "{% set first_user_prefix = system_message + '\\n\\n' if system_message is defined else '' %}"
)
PHI3 = {r: f"'<|{r}|>\\n' + message['content'] + '<|end|>\\n'" for r in ("system", "user", "assistant")}
ZEPHYR = (
    "{% for message in messages %}\n"
    + "".join(
        "{% " + word + " message['role'] == '" + r + "' %}\n{{ '<|" + r + "|>\\n' + message['content'] + eos_token }}\n"
        for word, r in (("if", "user"), ("elif", "system"), ("elif", "assistant"))
    )
    + "{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}"
)
OLMO = {
    "system": "'<|system|>\\n' + message['content'] + '\\n'",
    "user": "'<|user|>\\n' + message['content'] + '\\n'",
    "assistant": "'<|assistant|>\\n'  + message['content'] + eos_token + '\\n'",
}
GRANITE = (
    "{% for message in messages %}{{ '<|start_of_role|>' + message['role'] + '<|end_of_role|>' + message['content'] + "
    "'<|end_of_text|>\\n' }}{% if loop.last and add_generation_prompt %}{{ '<|start_of_role|>assistant<|end_of_role|>' }}"
    "{% endif %}{% endfor %}"
)
GRANITE_DATED = (
    "{% if messages[0]['role'] == 'system' %}{% set system_message = messages[0]['content'] %}{% set messages = messages[1:] %}"
    "{% else %}{% set system_message = \"Knowledge Cutoff Date: April 2024.\\nToday's Date: \" + strftime_now('%B %d, %Y') + "
    '".\\nYou are Granite." %}{% set system_message = system_message + " You are a helpful AI assistant." %}{% endif %}'
    "{{ '<|start_of_role|>system<|end_of_role|>' + system_message + '<|end_of_text|>\\n' }}" + GRANITE
)


def deepseek_r1(generation):
    return (
        "{% set ns = namespace(s='') %}{% for message in messages %}{% if message['role'] == 'system' %}"
        "{% set ns.s = message['content'] %}{% endif %}{% endfor %}{{ bos_token }}{{ ns.s }}"
        "{% for message in messages %}{% if message['role'] == 'user' %}{{'<｜User｜>' + message['content']}}{% endif %}"
        "{% if message['role'] == 'assistant' %}{% set content = message['content'] %}{% if '</think>' in content %}"
        "{% set content = content.split('</think>')[-1] %}{% endif %}"
        "{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{'" + generation + "'}}{% endif %}"
    )


DEEPSEEK_CODER = (
    "{%- set ns = namespace(found=messages[0]['role'] == 'system') -%}{{bos_token}}{%- if not ns.found -%}\n"
    "{{'You are an AI programming assistant, utilizing the Deepseek Coder model. Be good\\n'}}\n{%- endif %}\n"
    "{%- for message in messages %}\n    {%- if message['role'] == 'system' %}\n{{ message['content'] }}\n    {%- else %}\n"
    "        {%- if message['role'] == 'user' %}\n{{'### Instruction:\\n' + message['content'] + '\\n'}}\n        {%- else %}\n"
    "{{'### Response:\\n' + message['content'] + '\\n<|EOT|>\\n'}}\n        {%- endif %}\n    {%- endif %}\n{%- endfor %}\n"
    "{% if add_generation_prompt %}\n{{'### Response:'}}\n{% endif %}"
)
DEEPSEEK = {
    "user": "'User: ' + message['content'] + '\\n\\n'",
    "assistant": "'Assistant: ' + message['content'] + eos_token",
    "system": "message['content'] + '\\n\\n'",
}

# (family, template)
TEMPLATES = [
    ("chatml", CHATML),
    ("chatml", DEFAULT.format("You are a helpful assistant named A.\\nIt\\'s fine.") + CHATML),
    ("chatml", "{{ bos_token }}" + CHATML),
    ("qwen3", QWEN3),
    ("qwq", QWQ),
    ("smollm3", SMOLLM3),
    (
        "phi-4",
        by_role(
            {r: f"'<|im_start|>{r}<|im_sep|>' + message['content'] + '<|im_end|>'" for r in PHI3},
            "'<|im_start|>assistant<|im_sep|>'",
            "",
        ),
    ),
    ("llama-3", LLAMA3),
    ("llama-3.1", LLAMA31),
    ("llama-2", LLAMA2),
    ("mistral-v1", mistral(("[INST] ", " [/INST]"), "{{ message['content'] + eos_token}}")),
    ("mistral-v1-spaced", mistral(("[INST] ", " [/INST]"), "{{ message['content'] + eos_token + ' ' }}")),
    (
        "mistral-v1-system",
        mistral((" [INST] ", " [/INST]"), "{{ ' ' + message['content'] + eos_token}}", "\\n\\n", "loop.first"),
    ),
    ("mistral-v3", mistral(("[INST] ", "[/INST]"), "{{- ' ' + message['content']|trim + eos_token}}", "\\n\\n")),
    ("mistral-v3-tekken", mistral(("[INST]", "[/INST]"), "{{- message['content'] + eos_token}}", "\\n\\n")),
    ("mistral-v7", mistral7("[SYSTEM_PROMPT] ", "[INST] ", "' ' + message['content'] + eos_token")),
    ("mistral-v7-tekken", mistral7("[SYSTEM_PROMPT]", "[INST]", "message['content'] + eos_token")),
    ("gemma", GEMMA2),
    ("gemma-3", GEMMA3),
    ("phi-3", by_role(PHI3, "'<|assistant|>\\n'", "")),
    (
        "phi-3",
        (
            "{{ bos_token }}{% for message in messages %}"
            "{{'<|' + message['role'] + '|>' + '\\n' + message['content'] + '<|end|>\\n' }}"
            "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
        ),
    ),
    (
        "phi-3-mini",
        by_role(
            {
                "user": "'<|user|>' + '\\n' + message['content'] + '<|end|>' + '\\n' + '<|assistant|>' + '\\n'",
                "assistant": "message['content'] + '<|end|>' + '\\n'",
            },
            "''",
            "",
        ),
    ),
    (
        "phi-4-mini",
        (
            "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}"
        ),
    ),
    ("zephyr", ZEPHYR),
    ("olmo", by_role(OLMO, "'<|assistant|>\\n'")),
    ("granite", GRANITE),
    ("granite", GRANITE_DATED),
    ("deepseek", by_role(DEEPSEEK, "'Assistant:'")),
    ("deepseek-coder", DEEPSEEK_CODER),
    ("deepseek-r1", deepseek_r1("<｜Assistant｜>")),
    ("deepseek-r1-think", deepseek_r1("<｜Assistant｜><think>\\n")),
]


def rendered(source):
    """The text of each conversation; None where the template raises an error."""
    try:
        template = _compile_jinja_template(source)
    except jinja2.exceptions.TemplateError:
        return [None for _ in conversations()]
    day = datetime.date(2024, 7, 26)
    texts = []
    for messages in conversations():
        try:
            texts.append(
                template.render(
                    messages=messages,
                    tools=None,
                    documents=None,
                    add_generation_prompt=True,
                    bos_token=BOS,
                    eos_token=EOS,
                    strftime_now=day.strftime,
                )
            )
        except (jinja2.exceptions.TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            texts.append(None)
    return texts


def golden(templates):
    """templates: (family or None, name, source)."""
    return {
        "jinja2": jinja2.__version__,
        "bos": BOS,
        "eos": EOS,
        "conversations": list(conversations()),
        "templates": [
            {
                "family": family,
                "name": name,
                "sha256": hashlib.sha256(source.encode()).hexdigest(),
                "source": source,
                "texts": rendered(source),
            }
            for family, name, source in templates
        ],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--templates", type=pathlib.Path, help="a folder of *.jinja; needs --write")
    parser.add_argument("--write", type=pathlib.Path, help="file to write; default: the golden file")
    options = parser.parse_args()
    if options.templates and not options.write:
        parser.error("--templates needs --write FILE. The golden file holds only the templates of this script.")
    options.write = options.write or GOLDEN
    if options.templates:
        templates = [(None, f.name, f.read_text()) for f in sorted(options.templates.glob("*.jinja"))]
    else:
        templates = [(family, family, source) for family, source in TEMPLATES]
    text = json.dumps(golden(templates), ensure_ascii=False, indent=1) + "\n"
    same = options.write.exists() and options.write.read_text() == text
    if not options.check and not same:
        options.write.write_text(text)
    print(f"{len(templates)} chat templates: {'as before' if same else 'different'}")
    sys.exit(1 if options.check and not same else 0)


if __name__ == "__main__":
    main()
