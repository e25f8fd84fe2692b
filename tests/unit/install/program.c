/*
 * An application of libdsec: built against an installed tree alone, by test_install.py, as C11 and
 * as C++17. It needs no engine.
 */
#include <dsec/dsec.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
	struct dsec_open_opts opts;
	struct dsec_id id;
	struct dsec *d;
	char text[27];
	int r;

	memset(&opts, 0, sizeof(opts));
	opts.size = sizeof(opts);
	opts.address = "unix:/nonesuch/socket";
	if (dsec_id_parse("0123456789abcdefghjkmnpqrs", &id) < 0)
		return 2;
	dsec_id_print(id, text);
	r = dsec_open(&opts, &d);
	printf("%s %d %s\n", text, r, dsec_error(NULL, r));
	return 0;
}
