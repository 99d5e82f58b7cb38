//! Style sheets are imported for esbuild, and export nothing.

declare module "*.css";
