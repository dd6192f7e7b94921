"""Draws a workflow graph: what it shows, where everything is, and the picture as SVG.

diagram = diagram_from_view(view)                        # diagram.py: steps and edges, with statuses
outline = make_outline(diagram, max_nodes=1_500, expanded=frozenset())  # outline.py: groups, if it is large
layout = lay_out(outline)                                # layout.py: coordinates
svg = render_svg(layout, is_standalone=False)            # svg.py: text; its colours are in graph.css
"""
