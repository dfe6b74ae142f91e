// The products of each part (parts.h): the outputs of the panels [first, end), all rows. Included
// within an instruction set's namespace, and not within the unnamed one in it, since the parts are
// linked by these names.

void MultiplyFloats(const MatmulArgs& args, size_t first, size_t end);
void MultiplyInts(const MatmulArgs& args, size_t first, size_t end);
void MultiplySupers(const MatmulArgs& args, size_t first, size_t end);
void MultiplyCodes(const MatmulArgs& args, size_t first, size_t end);
void MultiplyWide(const MatmulArgs& args, size_t first, size_t end);
