/*
 * How long the scheduler lets a task of this engine run before another that waits: its threads, its
 * workers, and everything in its sandboxes, which all inherit it.
 */
#pragma once

#include <stdint.h>

/*
 * From here on, for the calling thread and what it starts; 0: as the kernel has it, which takes
 * 100 us at least. Where that cannot be it is logged, and nothing else changes.
 */
void slice_set(uint32_t slice_us);
