/** Turns the system's refusal of a folder into a sentence that names the folder and the way out. */
import { AppError, messageOf } from '../errors.js';

const REASONS: Readonly<Record<string, string>> = {
  EACCES: 'this user may not write there',
  EPERM: 'this user may not write there',
  EROFS: 'it is on a disk that is read-only',
  ENOSPC: 'its disk is full',
  EDQUOT: "this user's share of the disk is used up",
  ENOTDIR: 'a part of its path is a file',
  EEXIST: 'a file has its name',
  ENAMETOOLONG: 'its name is too long',
};

/** @param what begins the sentence, for example `The data folder` */
export function folderFault(error: unknown, what: string, folder: string, way: string): AppError {
  if (error instanceof AppError) return error;
  const code = (error as NodeJS.ErrnoException).code ?? '';
  const reason = REASONS[code] ?? messageOf(error);
  return new AppError('REDIS_UNAVAILABLE', `${what} ${folder} can not be used: ${reason}; ${way}`, { cause: error });
}
