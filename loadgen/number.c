/* Numbers on the command lines of dsec-loadgen and dsec-storms. Stateless. */
#include "loadgen/number.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

int number_parse(const char *text, double least, double most, double *ret)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !isfinite(value) || value < least || value > most)
		return -EINVAL;
	*ret = value;
	return 0;
}
