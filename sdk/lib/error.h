/* Why the calling thread's last call failed, in words. */
#pragma once

/* Remembers the text for dsec_error() in this thread and returns r. */
__attribute__((format(printf, 2, 3))) int dsec__fail(int r, const char *format, ...);
