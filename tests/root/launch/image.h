/* The EROFS image of launcher tests: the probe, the fixed devices and a few files. */
#pragma once

/* Build it in a temporary folder; a failure ends the program. */
void image_build(void);
void image_remove(void);

/* A detached mount of the image (NULL: the standard one), or -errno. */
int image_mount(const char *variant);
