/* Looks up 3FS's library. Called when a remote is checked and opened. */
#include "engine/serve/remote_usrbio.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

static const struct {
	const char *name;
	size_t at;
} functions[] = {
#define FUNCTION(name)                                                                             \
	{                                                                                          \
		"hf3fs_" #name, offsetof(struct usrbio_api, name)                                  \
	}
	FUNCTION(extract_mount_point),
	FUNCTION(iovcreate),
	FUNCTION(iovdestroy),
	FUNCTION(iorcreate4),
	FUNCTION(iordestroy),
	FUNCTION(reg_fd),
	FUNCTION(dereg_fd),
	FUNCTION(prep_io),
	FUNCTION(submit_ios),
	FUNCTION(wait_for_ios),
#undef FUNCTION
};

int usrbio_find(struct usrbio_api *ret)
{
	/* Kept: its threads and what it has mapped do not end with a remote. */
	void *library = dlopen(USRBIO_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	int r = library ? 0 : -ENOENT;

	for (size_t i = 0; r == 0 && i < sizeof functions / sizeof *functions; i++) {
		void *function = dlsym(library, functions[i].name);

		if (!function)
			r = -ENOENT;
		memcpy((char *)ret + functions[i].at, &function, sizeof function);
	}
	if (library)
		(void)dlclose(library); /* RTLD_NODELETE: it stays */
	return r;
}
