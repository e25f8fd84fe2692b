/* What an engine has, and what it left, as the kernel shows it. */
#pragma once

struct engine;

/* Notes the BPF objects that the engine holds now. */
void objects_read(struct engine *e);
