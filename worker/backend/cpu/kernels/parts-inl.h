// What part_functions-inl.h declares, of the part that is compiled. Included where that is, after
// all loops.

#if STRATA_HAS_PART(STRATA_PART_FLOATS)
void MultiplyFloats(const MatmulArgs& args, size_t first, size_t end) {
  switch (args.weights.format) {
    case WeightFormat::kF16:
      Multiply<FloatProduct<F16>>(args, first, end);
      return;
    case WeightFormat::kBF16:
      Multiply<FloatProduct<BF16>>(args, first, end);
      return;
    default:
      Multiply<FloatProduct<float>>(args, first, end);
  }
}
#endif

#if STRATA_HAS_PART(STRATA_PART_INTS)
void MultiplyInts(const MatmulArgs& args, size_t first, size_t end) {
  switch (args.weights.format) {
    case WeightFormat::kInt8:
      MultiplyRows<QuantProduct<Int8Format>>(args, first, end);
      break;
    case WeightFormat::kAffine8:
      MultiplyRows<QuantProduct<Affine8Format>>(args, first, end);
      break;
    default:
      MultiplyRows<QuantProduct<Affine4Format>>(args, first, end);
  }
  if constexpr (kTiling.tile_rows > 0) {
    EndTiles(args);
  }
}
#endif

#if STRATA_HAS_PART(STRATA_PART_SUPERS)
void MultiplySupers(const MatmulArgs& args, size_t first, size_t end) {
  switch (args.weights.format) {
    case WeightFormat::kSuper2:
      MultiplyRows<Super2Product>(args, first, end);
      return;
    case WeightFormat::kSuper4:
      MultiplyRows<SuperProduct<Super4Format>>(args, first, end);
      return;
    case WeightFormat::kSuper5:
      MultiplyRows<SuperProduct<Super5Format>>(args, first, end);
      return;
    default:
      MultiplyRows<SuperProduct<Super6Format>>(args, first, end);
  }
}
#endif

#if STRATA_HAS_PART(STRATA_PART_CODES)
void MultiplyCodes(const MatmulArgs& args, size_t first, size_t end) {
  const CodeBook& book = BookOf(args.weights.format);
  if (book.scales == CodeScales::kFloat8Halves) {
    MultiplyRows<CodeProduct<HalvesOfCodes>>(args, first, end);
  } else if (book.two) {
    MultiplyRows<CodeProduct<TwoOfCodes>>(args, first, end);
  } else if (book.narrow) {
    MultiplyRows<CodeProduct<NarrowCodes>>(args, first, end);
  } else {
    MultiplyRows<CodeProduct<WideCodes>>(args, first, end);
  }
}
#endif

#if STRATA_HAS_PART(STRATA_PART_WIDE)
void MultiplyWide(const MatmulArgs& args, size_t first, size_t end) {
  switch (args.weights.format) {
    case WeightFormat::kInt8:
      MultiplyRows<DequantProduct<Int8Format>>(args, first, end);
      return;
    case WeightFormat::kAffine8:
      MultiplyRows<DequantProduct<Affine8Format>>(args, first, end);
      return;
    case WeightFormat::kAffine4:
      MultiplyRows<DequantProduct<Affine4Format>>(args, first, end);
      return;
    case WeightFormat::kSuper2:
      MultiplyRows<Super2DequantProduct>(args, first, end);
      return;
    case WeightFormat::kSuper4:
      MultiplyRows<SuperDequantProduct<Super4Format>>(args, first, end);
      return;
    case WeightFormat::kSuper5:
      MultiplyRows<SuperDequantProduct<Super5Format>>(args, first, end);
      return;
    case WeightFormat::kSuper6:
      MultiplyRows<SuperDequantProduct<Super6Format>>(args, first, end);
      return;
    default:
      MultiplyRows<CodeDequantProduct>(args, first, end);
  }
}
#endif
