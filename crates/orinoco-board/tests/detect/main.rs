//! Detection on synthetic boards: directories with the files that public descriptions give for each kind of board. No file
//! here was copied from a board of ours.

mod builder;
mod hostile;
mod kinds;
mod real_boards;
