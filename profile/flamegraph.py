"""Draws folded stacks as a flame graph: one SVG that needs nothing but itself.

    python3 profile/flamegraph.py build/profile/NAME/on.folded > on.svg

A click on a frame makes it as wide as the picture, a click on the lowest one shows all again.
"""

import sys
from html import escape

from causes import FOLDER, KERNEL, UNKNOWN, split
from folding import read_folded

WIDTH = 1280
ROW = 17
HEAD = 46
LETTER = 6.6  # width of one at 11 px
NARROWEST = 0.3  # of a frame that is drawn

HUES = {"broker": 8, "mqtt": 28, "net": 48, "base": 68, "pg": 110, "workers": 140, "store": 165,
        "sink": 185, "cdc": 205, "auth": 225, "functions": 245}

SCRIPT = """
const frames = [...document.querySelectorAll('g.f')];
function zoom(target) {
    const left = +target.dataset.x, width = +target.dataset.w, row = +target.dataset.r;
    for (const f of frames) {
        let x = +f.dataset.x, w = +f.dataset.w;
        const above = +f.dataset.r < row && x <= left + 1e-9 && x + w >= left + width - 1e-9;
        if (above) { x = left; w = width; }
        const shown = x >= left - 1e-9 && x + w <= left + width + 1e-9;
        f.style.display = shown ? '' : 'none';
        if (!shown) continue;
        const px = (x - left) / width * WIDTH, pw = w / width * WIDTH;
        const rect = f.querySelector('rect'), text = f.querySelector('text');
        rect.setAttribute('x', px); rect.setAttribute('width', Math.max(pw - 0.4, 0.2));
        const room = Math.floor((pw - 6) / LETTER), name = f.dataset.n;
        text.setAttribute('x', px + 3);
        text.textContent = room < 3 ? '' : name.length <= room ? name : name.slice(0, room - 2) + '..';
    }
}
for (const f of frames) f.addEventListener('click', () => zoom(f));
"""


class Node:
    def __init__(self):
        self.weight = 0.0
        self.children = {}


def tree_of(folded):
    root = Node()
    for stack, weight in folded.items():
        root.weight += weight
        node = root
        for frame in stack:
            node = node.children.setdefault(frame, Node())
            node.weight += weight
    return root


def color_of(frame):
    holder, symbol = split(frame)
    shade = sum(symbol.encode()) % 12
    folder = FOLDER.search(symbol)
    if folder:
        return f"hsl({HUES.get(folder[1], 300)} 75% {62 + shade}%)"
    if holder == KERNEL:
        return f"hsl(0 0% {70 + shade}%)"
    if holder == "postgres":
        return f"hsl(215 45% {68 + shade}%)"
    if symbol == UNKNOWN:
        return "hsl(0 0% 90%)"
    return f"hsl(275 30% {74 + shade}%)"


def shortened(name, width):
    room = int((width - 6) / LETTER)
    if room < 3:
        return ""
    return name if len(name) <= room else name[:room - 2] + ".."


def frames_of(root):
    """(frame, depth, x, width, weight), x and width as shares of the picture; without recursion: stacks
    may be deeper than Python's."""
    todo = [("all`all", root, 0, 0.0)]
    while todo:
        frame, node, depth, x = todo.pop()
        width = node.weight / root.weight if root.weight else 1
        if width * WIDTH < NARROWEST:
            continue
        yield frame, depth, x, width, node.weight
        for name, child in sorted(node.children.items()):
            todo.append((name, child, depth + 1, x))
            x += child.weight / root.weight


def duration(microseconds):
    return f"{microseconds / 1e6:.3f} s" if microseconds >= 1e5 else f"{microseconds / 1e3:.2f} ms"


def svg_of(folded, title):
    root = tree_of(folded)
    frames = list(frames_of(root))
    depth = max(frame[1] for frame in frames) + 1
    height = HEAD + depth * ROW + 8
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
           f'viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="11">',
           f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
           f'<text x="{WIDTH / 2}" y="20" font-size="15" text-anchor="middle">{escape(title)}</text>',
           f'<text x="8" y="38" fill="#777">{duration(root.weight)} in {len(folded)} stacks; click: wider'
           f'</text>']
    for frame, row, x, width, weight in frames:
        holder, symbol = split(frame)
        name = symbol.removeprefix("pgmqtt::")
        left, wide = x * WIDTH, width * WIDTH
        top = height - 8 - (row + 1) * ROW
        share = 100 * weight / root.weight if root.weight else 0
        tip = f"{symbol} ({holder}) {duration(weight)}, {share:.2f} %"
        out.append(
            f'<g class="f" data-x="{x:.8f}" data-w="{width:.8f}" data-r="{row}" '
            f'data-n="{escape(name)}"><title>{escape(tip)}</title>'
            f'<rect x="{left:.2f}" y="{top}" width="{max(wide - 0.4, 0.2):.2f}" height="{ROW - 1}" '
            f'fill="{color_of(frame)}" rx="1"/><text x="{left + 3:.2f}" y="{top + 12}">'
            f'{escape(shortened(name, wide))}</text></g>')
    script = SCRIPT.replace("WIDTH", str(WIDTH)).replace("LETTER", str(LETTER))
    out.append(f"<script><![CDATA[{script}]]></script></svg>\n")
    return "\n".join(out)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.stdout.write(svg_of(read_folded(sys.argv[1]), sys.argv[1]))
