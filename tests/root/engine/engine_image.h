/* The image of engine tests: the project's minimal one, with the tests' programs in /bin. */
#pragma once

#include <stdbool.h>

/* One more program for it, in /bin under this name: before suites_main(), at most 8. */
void image_add(const char *path, const char *name);
bool image_build(void);
void image_remove(void);
/* Where it lies, "test.erofs", and where engines have their sockets and logs. */
const char *image_folder(void);
